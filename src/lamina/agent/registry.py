"""Named agents: who each one is, which tools it has, its model and its limits. They are data, not code.

    agents = load_agents("agents.toml")
    agent = agents.make("reviewer", client=client, actions=all_actions)
    async with open_for(agent, "chats.db", "review-7") as session:
        outcome = await agent.run(session, "Is the retry policy sound?")

The file has one table for each agent:

    [reviewer]
    about = "reads changes and says what is wrong with them"
    persona = "You review changes. Be brief, and quote the lines that you mean."
    tools = ["ls", "read", "grep"]
    model = "claude-sonnet-5-5"
    thinking = true
    limits = {steps = 20, money = 0.5}

The name of the agent is kept with a conversation, so that whoever opens it again can choose the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from lamina.agent.actions import Action
from lamina.agent.loop import Agent
from lamina.agent.profiles import AgentProfile
from lamina.clients.events import Client
from lamina.errors import BadInput
from lamina.settings import decode_toml, find_error_line


class AgentRegistry(Mapping[str, AgentProfile]):
    """The agents that there are, by name."""

    def __init__(self, profiles: Mapping[str, AgentProfile]) -> None:
        self._profiles = dict(profiles)

    def __getitem__(self, name: str) -> AgentProfile:
        if name not in self._profiles:
            names = ", ".join(sorted(self._profiles)) or "none"
            raise BadInput(f"there is no agent {name!r}", place="agents", hint=f"there are: {names}")
        return self._profiles[name]

    def __contains__(self, name: object) -> bool:
        return name in self._profiles

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    def make(self, name: str, *, client: Client, actions: Sequence[Action] = (), **more: Any) -> Agent:
        """Make the agent of this name. Of the actions it gets those that its profile names.

        `more` are further fields of `Agent`, such as `approve` and hooks.
        """
        profile = self[name]
        return Agent(
            client=client,
            actions=_choose_actions(name, profile, actions),
            limits=profile.limits,
            profile=msgspec.structs.replace(profile, name=name),
            **more,
        )


def _choose_actions(name: str, profile: AgentProfile, actions: Sequence[Action]) -> tuple[Action, ...]:
    """The actions that a profile names; all of them if it names none."""
    if profile.tools is None:
        return tuple(actions)
    by_name = {action.tool.name: action for action in actions}
    missing = [tool for tool in profile.tools if tool not in by_name]
    if missing:
        hint = f"the actions given are {', '.join(by_name) or 'none'}"
        raise BadInput(f"no action is called {', '.join(missing)}", place=f"agent {name!r}", hint=hint)
    return tuple(by_name[tool] for tool in profile.tools)


def load_agents(path: str | PathLike[str]) -> AgentRegistry:
    """Read the agents of a TOML file. Raises BadInput with the line of what is wrong."""
    file = Path(path)
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot be read: {reason}", place=str(file), hint="give a TOML file") from None
    profiles: dict[str, AgentProfile] = {}
    for name, table in decode_toml(text, file).items():
        try:
            profiles[name] = msgspec.convert(table, AgentProfile)
        except (msgspec.ValidationError, BadInput) as error:
            line = find_error_line(text, str(error), table=name) or 1
            fields = [field for field in AgentProfile.__struct_fields__ if field != "name"]
            hint = f"an agent has {', '.join(fields)}"
            raise BadInput(str(error), place=f"{file}:{line}", hint=hint) from None
    return AgentRegistry(profiles)
