"""Notes in the record what a wrapped client sends and gets: the request as it was given to the SDK.

The SDK writes the bytes itself, so a body here has the same values as the one that left, and not always the
same spaces. Headers, timeouts and other arguments that are no part of the body are not kept: a key may be
among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from time import monotonic, time
from typing import Any

import msgspec

from lamina.conversations.conversation import DOOR, Conversation
from lamina.conversations.record import Answered, CutNote, SentRequest
from lamina.conversations.store import changes_requests
from lamina.dialects.cache_reports import NO_REPORT, CacheReport
from lamina.dialects.model_names import find_model
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.fitting.fitted import Fitted
from lamina.fitting.policy import Keep

_NOT_SENT = frozenset(("extra_headers", "extra_query", "timeout", "betas"))
"""Arguments of SDKs that are no part of the body."""

_NOT_GIVEN = frozenset(("NotGiven", "Omit"))
"""The types of what SDKs take for an argument that was not given."""

_numbers = count(1)


class CallRecord:
    """What happens with one request of a wrapped client, for the record of its conversation."""

    def __init__(self, keep: Keep | None) -> None:
        self._keep = keep
        self._conversation: Conversation | None = None
        self._first_id = ""
        self._id = ""
        self._began = 0.0

    @property
    def keeps_bodies(self) -> bool:
        return self._keep == "all"

    @property
    def _keeps_figures(self) -> bool:
        """Whether requests are recorded at all, with or without their texts."""
        return self._keep in ("all", "lowered")

    def sent(
        self,
        conversation: Conversation,
        fitted: Fitted,
        came: Mapping[str, Any],
        *,
        dialect: str,
        window: int,
        why: str = "",
    ) -> None:
        """A request is given to the SDK. `came` is what the caller gave."""
        if not self._keeps_figures:
            return
        self._conversation = conversation
        self._id = f"{conversation.uid}-{next(_numbers)}"
        self._began = monotonic()
        cut = fitted.envelope.cut
        request = SentRequest(
            id=self._id,
            at=round(time(), 3),
            door=DOOR,
            dialect=dialect,
            model=find_model(fitted.request),
            tokens=fitted.envelope.tokens,
            window=window,
            epoch=len(fitted.ledger.cuts),
            cut=None if cut is None else CutNote.of(cut),
            follows=self._first_id,
            why=why,
        )
        self._first_id = self._first_id or self._id  # what is sent again follows this one
        if not self.keeps_bodies:
            conversation.record.add_sent(request)
            return
        body = encode_arguments(fitted.request)
        came_body = None if fitted.request is came else encode_arguments(came)
        ledger = fitted.ledger if changes_requests(fitted.ledger) else None
        sized = msgspec.structs.replace(request, size=len(body))
        conversation.record.add_sent(sized, body=body, came=came_body, ledger=ledger)

    def answered(
        self,
        usage: Usage,
        *,
        answer: Any = None,
        recalled: bool = False,
        error: str = "",
        report: CacheReport = NO_REPORT,
    ) -> None:
        """The answer has come, or an error. `answer` is the SDK's own object, or the events of a stream."""
        conversation = self._conversation
        if conversation is None or not self._id:
            return
        body = None
        content_type = ""
        if self.keeps_bodies and answer is not None:
            content_type, body = _encode_answer(answer)
        answered = Answered(
            id=self._id,
            at=round(time(), 3),
            status=0 if error else 200,
            last=round(monotonic() - self._began, 3),
            content_type=content_type,
            usage=None if usage == NOTHING_REPORTED else usage,
            error=error,
            recalled=recalled,
            provider_cause=report.cause,
            provider_missed=report.missed,
        )
        conversation.record.add_answer(answered, body=body)
        self._id = ""


def _encode_answer(answer: Any) -> tuple[str, bytes]:
    """The content type and the body of an answer: a whole one, or the events of a stream."""
    if isinstance(answer, list):
        return "text/event-stream", b"".join(b"data: " + encode_value(event) + b"\n\n" for event in answer)
    return "application/json", encode_value(answer)


def encode_arguments(request: Mapping[str, Any]) -> bytes:
    """The body that an SDK makes of its arguments."""
    body: dict[str, Any] = {}
    for name, value in request.items():
        if name in _NOT_SENT or type(value).__name__ in _NOT_GIVEN:
            continue
        body[name] = value
    extra = body.pop("extra_body", None)
    if isinstance(extra, Mapping):
        body.update(extra)
    return encode_value(body)


def encode_value(value: Any) -> bytes:
    """A value of an SDK as JSON. What cannot be written is named by its type: a record never fails a call."""
    try:
        return msgspec.json.encode(value, enc_hook=_to_plain)
    except Exception as error:  # noqa: BLE001 - a foreign object may do anything
        return msgspec.json.encode({"not recorded": type(error).__name__})


def _to_plain(value: Any) -> Any:
    for name, options in (("model_dump", {"mode": "json", "exclude_unset": True}), ("to_dict", {})):
        method = getattr(value, name, None)
        if callable(method):
            return method(**options)
    if isinstance(value, Sequence):
        return list(value)
    return f"<{type(value).__name__}>"
