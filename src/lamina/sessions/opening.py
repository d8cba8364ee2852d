"""Opens the store of a session, and says how its conversation goes on.

What the caller gives comes first, then what is stored with the conversation, then the user's settings.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from os import PathLike, fspath
from typing import Any

from lamina.conversations.store import conversation_place, decode_state
from lamina.core.values import Role
from lamina.errors import BadInput
from lamina.fitting.policy import Policy
from lamina.sessions.recording import DOOR
from lamina.sessions.setup import RuntimeOptions, Setup, read_policy, store_options
from lamina.sessions.stored_conversation import StoredConversation
from lamina.settings import Settings
from lamina.stores.address import open_default_store, open_store, resolve_key
from lamina.stores.port import Store

RECALL_STAYS = (
    "the recall tool stays as it was when this conversation began: to change it now would rewrite its head"
)


@asynccontextmanager
async def open_session_store(
    store: Store | str | PathLike[str] | None,
    settings: Settings,
    *,
    key: Any = None,
    environment: Mapping[str, str],
) -> AsyncIterator[Store]:
    """Yield the caller's store, or the one at an address, or the user's own.

    A store that is opened here is closed at the end. If there is a key, from the caller or configured, it is
    sealed.
    """
    if store is not None and not isinstance(store, str | PathLike):
        if key is not None:
            hint = "seal it yourself: Sealed(store, key); or give an address"
            raise BadInput("a store that is open takes no key", place="key", hint=hint)
        yield store
        return
    store_key = await resolve_key(key, settings, environment)
    if store is None:
        opening = open_default_store(settings, key=store_key)
    else:
        opening = open_store(fspath(store), key=store_key)
    async with opening as opened_store:
        yield opened_store


async def refuse_other_doors(stored: StoredConversation) -> None:
    """Raise BadInput if a wrapped client or a gateway began the conversation of this name.

    What they keep of it is no log, so a session would begin anew under its name, and mix both records.
    """
    place = conversation_place(stored.where.workspace, stored.where.conversation)
    state = (await stored.store.read(place, last=0)).head.state
    if not state:
        return
    door = decode_state(state).door or "gateway"
    if door != DOOR:
        hint = "go on through that door, or open a session under another name"
        raise BadInput(
            f"conversation {stored.where.conversation!r} was begun by another door ({door})",
            place="Session.open",
            hint=hint,
        )


def continue_setup(
    stored: StoredConversation,
    first_setup: Setup,
    changes: dict[str, Any],
    *,
    policy: Policy,
    runtime: RuntimeOptions,
) -> Setup:
    """The setup of a conversation as it was left, with the caller's changes; of a new one the `first_setup`.

    The recall tool stays as it was once a request was sent. It is part of the prefix, so to add or remove it
    later would throw the whole cache away.
    """
    stored_setup = stored.live.setup
    setup = (stored_setup or first_setup).over({**changes, **read_policy(policy)})
    if stored_setup is not None and stored_setup.recall != setup.recall:
        was_answered = any(segment.role is Role.ASSISTANT for segment in stored.live.log)
        if was_answered or stored.state.ledger.mark:
            stored.notes.append(RECALL_STAYS)
            setup = setup.over({"recall": stored_setup.recall})
    return store_options(setup, policy, runtime)
