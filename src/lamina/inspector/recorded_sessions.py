"""A session as the inspector lists it: its line, and how the rest of it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from lamina.conversations.costs import is_refused
from lamina.conversations.lost_caches import count_losses
from lamina.conversations.record import count_compactions
from lamina.conversations.store import ConversationState, is_client_id
from lamina.costs.logs.recorded_conversations import SOURCE
from lamina.costs.logs.values import make_id
from lamina.costs.table import MoneySum
from lamina.inspector.sent_conversations import SentConversation, count_request_tokens


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list of sessions. Amounts that the records do not have are None.

    `answered` is False if no model has answered the first request, which is then the only one.
    `client_session` is the client's own id. `parent` is the session whose sub-agent this is; or if it
    `is_fork`, the one that it was forked from: a client that compacts or edits its history makes a fork.
    If it `is_at_least`, some requests have no price, and `dollars` is the sum of the others. Without
    `has_figures`, cost and lost caches are not read yet, and requests are those of the client.
    """

    id: str
    name: str
    source: str
    place: str
    first_words: str
    model: str
    calls: int
    tokens: int | None
    dollars: float | None = None
    lost_caches: int = 0
    began: float | None
    ended: float | None
    cuts: int = 0
    project: str = ""
    client_session: str = ""
    parent: str = ""
    is_fork: bool = False
    answered: bool = True
    has_figures: bool = True
    is_at_least: bool = False


ReadBodies: TypeAlias = Callable[[Sequence[str]], Mapping[str, Sequence[bytes]]]


class ListedSession(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A session of which the summary is in memory. `load` reads the rest.

    `sizes` has the time and the tokens of each of its requests, None where they are not known. `complete`
    reads the line with its figures, if the summary has none. `read_bodies` reads the records of it and of
    others in the same store, by their names, to search them. `is_log`: it is the log of a client.
    """

    summary: SessionSummary
    load: Callable[[], SentConversation]
    complete: Callable[[], ListedSession] | None = None
    read_bodies: ReadBodies | None = None
    sizes: tuple[tuple[float | None, int | None], ...] = ()
    is_log: bool = False


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that somebody opened: its line, and everything that is recorded of it."""

    summary: SessionSummary
    sent: SentConversation


def make_line(
    conversation: SentConversation, load: Callable[[], SentConversation] | None = None
) -> ListedSession:
    """A conversation as a line of the list. Without `load` it stays in memory."""
    sizes = tuple(
        (call.request.at or None, count_request_tokens(call) or None) for call in conversation.calls
    )
    return ListedSession(
        summary=summarise_sent(conversation),
        load=load or partial(_return, conversation),
        sizes=sizes,
        is_log=conversation.is_log,
    )


def _return(conversation: SentConversation) -> SentConversation:
    return conversation


def summarise_sent(conversation: SentConversation) -> SessionSummary:
    """The line of a recorded conversation in the list of sessions."""
    state = conversation.state
    calls = conversation.calls
    moments = [call.request.at for call in calls if call.request.at]
    cost = conversation.table.sum_money()
    cuts = sum(call.request.is_cut and not is_refused(call) for call in calls)
    words = [SOURCE, conversation.name]
    if conversation.is_log:  # two files may have sessions of one name
        words = [state.door, conversation.place, conversation.name]
    return SessionSummary(
        id=make_id(*words),
        name=conversation.name,
        source=state.door or calls[-1].request.door or SOURCE,
        place=conversation.place,
        first_words=conversation.title,
        model=conversation.model,
        calls=len(calls),
        tokens=max(map(count_request_tokens, calls)) or None,
        dollars=read_known(cost),
        is_at_least=bool(cost.reason and cost.least),
        lost_caches=count_losses(conversation.find_losses().values()),
        began=min(moments, default=None),
        ended=max(moments, default=None),
        cuts=cuts + len(conversation.compacted),
        project=conversation.project,
        client_session=state.group,
        parent=state.parent,
        is_fork=not conversation.is_log and _is_fork(state),
        answered=any(call.answer is not None for call in calls),
    )


def read_known(cost: MoneySum) -> float | None:
    """What is known of a sum; None if nothing is."""
    if cost.reason and not cost.least:
        return None
    return cost.least


def summarise_state(name: str, state: ConversationState) -> SessionSummary:
    """The line of a conversation whose record was not read."""
    source = state.door or SOURCE
    return SessionSummary(
        id=make_id(SOURCE, name),
        name=name,
        source=source,
        place=f"{state.upstream or source}/{name}",
        first_words=state.title,
        model=state.model,
        calls=state.requests,
        tokens=state.tokens or None,
        began=state.began or None,
        ended=state.updated or None,
        cuts=count_compactions(state.ledger) - state.inherited_cuts,
        client_session=state.group,
        parent=state.parent,
        is_fork=_is_fork(state),
        has_figures=False,
    )


def _is_fork(state: ConversationState) -> bool:
    return bool(state.parent) and not is_client_id(state.parent)
