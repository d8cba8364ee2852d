"""A recorded session as the inspector has it: its line in the list, and its history, read from a trace.

`sessions` has all of them, and reads them again when a file changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from lamina.conversations.lost_caches import count_losses
from lamina.errors import LaminaError
from lamina.inspector.sent_conversations import SentConversation
from lamina.models.facts import model_or_none
from lamina.replay.model_calls import ModelCall, RecordedConversation, read_conversation
from lamina.replay.recorded_usage import sum_recorded_usage
from lamina.replay.traces.own_answers import find_first_words
from lamina.replay.values import Trace, make_id

DEFAULT_WINDOW = 200_000
"""The window of a model that nobody knows."""


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
    dialect: str
    calls: int
    messages: int
    tokens: int | None
    dollars: float | None
    lost_caches: int
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


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded session, read and ready to be built.

    `sent` is lamina's own record of it, None for any other log. `history` reads what the client said: of a
    record, that is its last request as the client wrote it, which is read when somebody asks for it.
    """

    summary: SessionSummary
    history: Callable[[], RecordedConversation]
    sent: SentConversation | None = None

    @property
    def conversation(self) -> RecordedConversation:
        """The client's own history, for the question what other settings would have made of it."""
        return self.history()

    @property
    def version(self) -> int:
        """A number that changes when the session grows, or something of it is erased."""
        if self.sent is not None:
            return self.sent.version
        return self.summary.messages

    @property
    def window(self) -> int:
        """The window of the model that answered, or the one that its last request was fitted to."""
        if self.sent is not None and self.sent.window:
            return self.sent.window
        model = model_or_none(self.conversation.trace.model)
        if model is None:
            return DEFAULT_WINDOW
        return model.budget.window

    @property
    def has_head(self) -> bool:
        """Whether system text or tools were recorded. Logs of some coding agents have neither."""
        if self.sent is not None or self.conversation.tools:
            return True
        roles = {message.get("role") for message in self.conversation.messages}
        return not roles.isdisjoint(("system", "developer"))


ReadBodies: TypeAlias = Callable[[Sequence[str]], Mapping[str, Sequence[bytes]]]


class StoredSession(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A session of which only the summary is in memory. `load` reads the rest.

    `sizes` has the time and the tokens of each of its requests, None where they are not known. `complete`
    reads the line with its figures, if the summary has none. `read_bodies` reads the records of it and of
    others in the same store, by their names, to search them.
    """

    summary: SessionSummary
    load: Callable[[], RecordedSession]
    complete: Callable[[], StoredSession] | None = None
    read_bodies: ReadBodies | None = None
    sizes: tuple[tuple[float | None, int | None], ...] = ()


ListedSession: TypeAlias = RecordedSession | StoredSession


def read_session(trace: Trace) -> RecordedSession | None:
    """A trace as a session; None for one in which no model was asked.

    A question at the end that nobody answered counts as a call, if it is the only one.
    """
    try:
        conversation = read_conversation(trace)
    except (LaminaError, RecursionError):
        return None
    is_answered = bool(conversation.calls)
    if not is_answered:
        conversation = _add_unanswered_call(conversation)
    if not conversation.calls:
        return None
    reported = sum_recorded_usage(trace)
    usages = list(trace.used.values())
    times = [usage.at for usage in usages if usage.at is not None]
    summary = SessionSummary(
        id=make_id(trace.source, trace.place, trace.id),
        name=trace.id,
        source=trace.source,
        place=trace.place,
        first_words=find_first_words(conversation.messages),
        model=trace.model,
        dialect=trace.dialect,
        calls=len(conversation.calls),
        messages=len(trace.items),
        tokens=max((usage.total for usage in usages), default=None),
        dollars=reported.dollars,
        lost_caches=count_losses(reported.lost),
        began=min(times, default=None),
        ended=max(times, default=None),
        cuts=len(trace.compacted) + sum(usage.is_cut for usage in usages),
        project=trace.project,
        client_session=trace.client_session,
        parent=_find_parent(trace),
        answered=is_answered,
    )
    return RecordedSession(summary=summary, history=lambda: conversation)


def _add_unanswered_call(conversation: RecordedConversation) -> RecordedConversation:
    """The conversation with its first request, if there is no answer to it.

    It stays without a call if all of its answers are copies from another session, or if nobody asked
    anything: clients also record their own commands.
    """
    roles = {message.get("role") for message in conversation.messages}
    if "assistant" in roles or not find_first_words(conversation.messages):
        return conversation
    call = ModelCall(end=len(conversation.messages), answer="")
    return msgspec.structs.replace(conversation, calls=(call,))


def _find_parent(trace: Trace) -> str:
    """The name of the session that a sub-agent belongs to: "SESSION/agent-1" belongs to "SESSION"."""
    if trace.source != "claude-code":
        return ""
    return trace.id.rpartition("/")[0]
