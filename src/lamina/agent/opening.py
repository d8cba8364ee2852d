"""Opening a session for an agent: its tools in the head, its persona and guidelines in the system text.

Everything here can also be done with `Session.open` itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any

import msgspec

from lamina.agent.actions import Action
from lamina.agent.loop import Agent
from lamina.agent.profiles import CITING, EXPLORER, THINKING, guidelines
from lamina.core.values import RequestHead
from lamina.dialects.port import PlainHead
from lamina.errors import BadInput
from lamina.fitting.policy import Policy, choose_policy
from lamina.sessions import Persona, Session, SetupOptions
from lamina.sessions.system_sections import UsualPersona, Words
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
