"""Opening a session for an agent: its tools in the head, its persona and guidelines in the system text.

Everything here can be done by hand with `Session.open`; this says it once.
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
    **given: Any,
) -> AsyncIterator[Session]:
    """A session in the dialect of the agent's client; `given` are further arguments of `Session.open`.

    Without a `persona` the conversation's own stands. One that has none takes that of the user's settings,
    else `EXPLORER`. Tools and guidelines are sent first: they stay as they are while a conversation lasts.
    """
    own_actions = () if agent.plan else agent.actions
    plain = head or PlainHead()
    plain = msgspec.structs.replace(plain, tools=(*plain.tools, *(action.tool for action in own_actions)))
    contract = [system, guidelines(own_actions, recall=recall)]
    if agent.cites:
        contract.append(CITING)
    async with Session.open(
        store,
        conversation,
        dialect=agent.client.dialect,
        head=plain,
        recall=recall,
        persona=UsualPersona(EXPLORER) if persona is None else persona,
        system="\n\n".join(filter(None, contract)),
        **given,
    ) as session:
        yield session
