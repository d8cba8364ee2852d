"""Named agents, which are data, and sessions for an agent, with its tools, persona and guidelines.

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

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from lamina.agent.actions import Action
from lamina.agent.loop import Agent
from lamina.agent.profiles import CITING, EXPLORER, THINKING, AgentProfile, guidelines
from lamina.clients.events import Client
from lamina.core.values import RequestHead
from lamina.dialects.port import PlainHead
from lamina.errors import BadInput
from lamina.fitting.policy import Policy, choose_policy
from lamina.sessions import Persona, Session, SetupOptions
from lamina.sessions.system_sections import UsualPersona, Words
from lamina.settings import decode_toml, find_error_line
from lamina.stores.port import Store


@asynccontextmanager
async def open_for(
    agent: Agent,
    store: Store | str | PathLike[str] | None,
    conversation: str,
    /,
    *,
    policy: Policy | None = None,
    model: str | None = None,
    system: str = "",
    persona: Persona | Words | None = None,
    root: str | PathLike[str] | None = None,
    setup: SetupOptions | None = None,
    **more: Any,
) -> AsyncIterator[Session]:
    """Open a session in the dialect of the agent's client. The arguments are those of `Session.open`.

    The model has the recall tool, unless the policy says otherwise. Without a `persona` the conversation
    keeps its own. If it has none, that of the user's settings is used, or else `EXPLORER`. Tools and
    guidelines are sent first, since they do not change in a conversation. An agent of a registry has its own
    persona and model, and its name is kept with the conversation. Paths are attached from the agent's folder.
    """
    profile = agent.profile
    setup = setup or SetupOptions()
    if profile.name:
        setup = msgspec.structs.replace(setup, agent={**(setup.agent or {}), "name": profile.name})
    policy = choose_policy(policy, place="open_for")
    recall = policy.recall_mode("tool")
    own_actions = agent.actions
    if agent.plan:  # the plan runs them, and the model calls none
        own_actions = ()
    contract = [system, guidelines(own_actions, recall=recall == "tool")]
    if agent.cites:
        contract.append(CITING)
    if profile.thinking:
        contract.append(THINKING)
    own_persona: Persona | Words | UsualPersona | None = persona
    if persona is None:
        own_persona = profile.persona or UsualPersona(EXPLORER)
    if root is None:
        root = agent.workspace
    async with Session.open(
        store,
        conversation,
        policy=msgspec.structs.replace(policy, recall=recall),
        model=model or profile.model or None,
        system="\n\n".join(filter(None, contract)) or None,
        persona=own_persona,
        root=root,
        setup=msgspec.structs.replace(
            setup, dialect=agent.client.dialect, head=_add_tools(setup.head, own_actions)
        ),
        **more,
    ) as session:
        yield session


def _add_tools(head: PlainHead | RequestHead | None, actions: Sequence[Action]) -> PlainHead:
    """The head with the tools of the agent after its own."""
    if isinstance(head, RequestHead):
        hint = "give a PlainHead: its tools are joined with those of the agent"
        raise BadInput("a head in the words of a dialect", place="setup.head", hint=hint)
    plain_head = head or PlainHead()
    tools = tuple(action.tool for action in actions)
    return msgspec.structs.replace(plain_head, tools=plain_head.tools + tools)


class AgentRegistry(dict[str, AgentProfile]):
    """The agents that there are, by name."""

    def __missing__(self, name: str) -> AgentProfile:
        names = ", ".join(sorted(self)) or "none"
        raise BadInput(f"there is no agent {name!r}", place="agents", hint=f"there are: {names}")

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
