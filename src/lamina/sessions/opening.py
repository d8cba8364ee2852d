"""Opening a session: the store, the conversation as it was left, and what is given over it.

What the caller gives wins, then what the conversation kept, then the user's settings.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from os import PathLike, fspath
from typing import Any

from anyio import to_thread

from lamina.core.values import Budget, Role
from lamina.errors import BadInput
from lamina.sessions.request_builder import RequestBuilder, Ways
from lamina.sessions.setup import Setup
from lamina.sessions.stored_conversation import StoredConversation
from lamina.settings import Settings, load_settings
from lamina.stores.address import key_for, open_default_store, open_store
from lamina.stores.port import Store, Where

RECALL_KEPT = (
    "the recall tool stays as it was when this conversation began: to change it now would rewrite its head"
)


async def settings_for(given: Settings | None) -> Settings:
    return given if given is not None else await to_thread.run_sync(load_settings)


@asynccontextmanager
async def opened(
    store: Store | str | PathLike[str] | None,
    settings: Settings,
    *,
    key: Any = None,
    environment: Mapping[str, str],
) -> AsyncIterator[Store]:
    """The store itself, or the one at an address, closed at the end; without either, the user's own.

    With a key, given or configured, the one at an address is sealed.
    """
    if store is not None and not isinstance(store, str | PathLike):
        if key is not None:
            hint = "seal it yourself: Sealed(store, key); or give an address"
            raise BadInput("a store that is open takes no key", place="key", hint=hint)
        yield store
        return
    found_key = await key_for(key, settings, environment)
    if store is None:
        opening = open_default_store(settings, key=found_key)
    else:
        opening = open_store(fspath(store), key=found_key)
    async with opening as found:
        yield found


async def loaded(store: Store, where: Where) -> StoredConversation:
    """The conversation as it was left."""
    kept = StoredConversation(store, where)
    await kept.load()
    return kept


def prepared(
    kept: StoredConversation, settings: Settings, ways: Ways, given: dict[str, Any]
) -> RequestBuilder:
    """A desk for a conversation: set up as it was left, with what is given in its place."""
    usual = Setup(
        model=settings.model,
        dialect=settings.dialect,
        budget=Budget(window=settings.window) if settings.window else None,
    )
    setup = _frozen_recall(kept, (kept.told.setup or usual).over(given))
    desk = RequestBuilder(setup, ways, kept.where.workspace)
    if desk.left:
        kept.notes.append(f"{desk.dialect.name} cannot say: {', '.join(desk.left)}")
    return desk


def _frozen_recall(kept: StoredConversation, setup: Setup) -> Setup:
    before = kept.told.setup
    begun = any(segment.role is Role.ASSISTANT for segment in kept.told.log) or kept.state.ledger.mark
    if before is None or before.recall == setup.recall or not begun:
        return setup
    kept.notes.append(RECALL_KEPT)
    return setup.over({"recall": before.recall})
