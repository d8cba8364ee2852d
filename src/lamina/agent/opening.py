"""Opening a session for an agent: its tools in the head, its persona and guidelines in the system text.

Everything here can also be done with `Session.open` itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any

import msgspec

from lamina.agent.loop import Agent
from lamina.agent.persona import CITING, EXPLORER, guidelines
from lamina.dialects.port import PlainHead
from lamina.sessions import Persona, Session
from lamina.sessions.system_sections import UsualPersona, Words
from lamina.stores.port import Store


@asynccontextmanager
async def open_for(
    agent: Agent,
    store: Store | str | PathLike[str] | None,
    conversation: str,
    /,
    *,
    persona: Persona | Words | None = None,
    system: str = "",
    head: PlainHead | None = None,
    recall: bool = True,
    **arguments: Any,
) -> AsyncIterator[Session]:
    """Open a session in the dialect of the agent's client; `arguments` are more of those of `Session.open`.

    Without a `persona` the conversation keeps its own. If it has none, that of the user's settings is used,
    or else `EXPLORER`. Tools and guidelines are sent first, since they do not change in a conversation.
    """
    own_actions = () if agent.plan else agent.actions
    tools = tuple(action.tool for action in own_actions)
    plain_head = head or PlainHead()
    plain_head = msgspec.structs.replace(plain_head, tools=plain_head.tools + tools)
    contract = [system, guidelines(own_actions, recall=recall)]
    if agent.cites:
        contract.append(CITING)
    async with Session.open(
        store,
        conversation,
        dialect=agent.client.dialect,
        head=plain_head,
        recall=recall,
        persona=UsualPersona(EXPLORER) if persona is None else persona,
        system="\n\n".join(filter(None, contract)),
        **arguments,
    ) as session:
        yield session
