"""Opens the store of a session and reads its conversation, with its setup as it was left.

What the caller gives comes first, then what is stored with the conversation, then the user's settings.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread

from lamina.context.port import Source
from lamina.conversations.store import conversation_place, decode_state
from lamina.core.values import Role, Segment
from lamina.errors import BadInput
from lamina.fitting.policy import Policy
from lamina.sessions.attachments import files_mentioned
from lamina.sessions.recording import DOOR
from lamina.sessions.redaction import redact_segments
from lamina.sessions.request_builder import RequestBuilder, RuntimeOptions, SessionInputs
from lamina.sessions.setup import Setup, SetupOptions, answers_recall, load_user_policy, read_policy
from lamina.sessions.stored_conversation import StoredConversation
from lamina.sessions.stored_options import choose_stored_options
from lamina.sessions.system_sections import (
    Persona,
    UsualPersona,
    Words,
    changes_by_turn,
    persona_for,
    read_sections,
)
from lamina.settings import Settings, load_settings
from lamina.stores.address import open_default_store, open_store, resolve_key
from lamina.stores.port import Store, Where

RECALL_STAYS = (
    "the recall tool stays as it was when this conversation began: to change it now would rewrite its head"
)


class OpenConversation(NamedTuple):
    """A conversation as it was left, and the builder of its next requests."""

    stored: StoredConversation
    builder: RequestBuilder


@asynccontextmanager
async def open_conversation(
    store: Store | str | PathLike[str] | None,
    conversation: str,
    *,
    policy: Policy,
    workspace: str | None,
    key: Any,
    model: str | None,
    system: Words | None,
    persona: Persona | Words | UsualPersona | None,
    sources: Sequence[Source],
    root: str | PathLike[str] | None,
    setup: SetupOptions,
    runtime: RuntimeOptions,
    settings: Settings | None,
) -> AsyncIterator[OpenConversation]:
    """Open the store and read the conversation in it. The arguments are those of `Session.open`."""
    environment: Mapping[str, str] = {}
    if settings is None:
        environment = os.environ
        settings = await to_thread.run_sync(load_settings)
        user_policy = load_user_policy(settings, environment)
    else:
        # The program made these settings. No file or variable is named if something in them is wrong.
        user_policy = load_user_policy(settings)
    if workspace is None:
        workspace = settings.workspace
    folder: Path | None = None
    if root is not None:
        folder = Path(root)
        if runtime.mentioned is None:
            runtime = msgspec.structs.replace(runtime, mentioned=files_mentioned(root))
    async with _open_session_store(store, settings, key=key, environment=environment) as opened_store:
        stored = StoredConversation(opened_store, Where(workspace, conversation))
        await stored.load()
        if not stored.live.count:
            await _refuse_other_doors(stored)
        chosen_persona = persona_for(stored.live.log, persona, settings)

        async def read_redacted_sections(*, calls_functions: bool = True) -> tuple[Segment, ...]:
            sections = await read_sections(
                system,
                chosen_persona,
                runtime.context,
                store=opened_store,
                workspace=workspace,
                calls_functions=calls_functions,
            )
            return tuple(redact_segments(sections, runtime.redact))

        changes = changes_by_turn(system, chosen_persona)
        inputs = SessionInputs(
            sections=await read_redacted_sections(calls_functions=False),
            read_sections=read_redacted_sections if changes else None,
            sources=tuple(sources),
            root=folder,
        )
        setup_changes = {"model": model, **msgspec.structs.asdict(setup)}
        builder = _prepare_builder(
            stored,
            settings,
            runtime,
            inputs,
            policy=policy,
            user_policy=user_policy,
            changes=setup_changes,
        )
        yield OpenConversation(stored, builder)


async def _refuse_other_doors(stored: StoredConversation) -> None:
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


@asynccontextmanager
async def _open_session_store(
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


def _prepare_builder(
    stored: StoredConversation,
    settings: Settings,
    runtime: RuntimeOptions,
    inputs: SessionInputs,
    *,
    policy: Policy,
    user_policy: Policy,
    changes: dict[str, Any],
) -> RequestBuilder:
    """Make the builder for a conversation, set up as it was left and with the caller's changes.

    What is not stored with it comes from the caller's policy, and else from the user's settings.
    """
    setup = stored.live.setup
    if setup is None:
        setup = Setup(model=settings.model, dialect=settings.dialect).over(read_policy(user_policy))
    setup = _keep_recall(stored, setup.over({**changes, **read_policy(policy)}))
    setup = _keep_runtime(setup, runtime, policy)
    whole_policy = policy.over(user_policy)
    builder = RequestBuilder(setup, whole_policy, runtime, inputs, stored.where.workspace)
    if builder.unsupported:
        stored.notes.append(f"{builder.dialect.name} cannot say: {', '.join(builder.unsupported)}")
    return builder


def _keep_runtime(setup: Setup, runtime: RuntimeOptions, policy: Policy) -> Setup:
    stored_options = choose_stored_options(
        setup.stored_options,
        policy=policy,
        template=runtime.template,
        redact=runtime.redact,
        forgo=runtime.forgo,
        answers_recall=answers_recall(setup),
    )
    return msgspec.structs.replace(setup, stored_options=stored_options)


def _keep_recall(stored: StoredConversation, setup: Setup) -> Setup:
    """The setup with the recall tool as it was, once a request was sent.

    It is part of the prefix. To add or remove it later would throw the whole cache away.
    """
    stored_setup = stored.live.setup
    if stored_setup is None:
        return setup
    if stored_setup.recall == setup.recall:
        return setup
    was_answered = any(segment.role is Role.ASSISTANT for segment in stored.live.log)
    if not was_answered and not stored.state.ledger.mark:
        return setup
    stored.notes.append(RECALL_STAYS)
    return setup.over({"recall": stored_setup.recall})
