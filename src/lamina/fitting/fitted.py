"""`Fitted`: what `fit_request` returns, and what a caller can ask of it: recalls, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.caches.marker_plan import MarkerPlan
from lamina.core.envelope import Envelope
from lamina.core.explanation import LeftOut, list_left_out
from lamina.core.recall import recall
from lamina.core.values import Ledger, RequestHead, Segment, ToolCall
from lamina.core.wording import text_of
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.fitting.recalls import RECALL, answer_recall, read_call, render_turns, write_recall
from lamina.segments import call as call_segment


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that fits, the ledger for the next call, and the account of what was done.

    `headers` must be sent with the request. `plan` says why each cache marker is where it is. `left` names
    the parameters and tools that the target dialect cannot express. `has_recall`: lamina has added the recall
    tool, whose calls it answers; it is the last of the request's tools. `window` is the one that the request
    was fitted to.
    """

    request: dict[str, Any]
    ledger: Ledger
    envelope: Envelope
    log: tuple[Segment, ...]
    headers: Mapping[str, str] = {}
    plan: MarkerPlan | None = None
    left: tuple[str, ...] = ()
    dialect: Dialect | None = None
    has_recall: bool = False
    has_handles: bool = True
    window: int = 0

    @property
    def own_names(self) -> frozenset[str]:
        """The names of the tools whose calls lamina answers."""
        return frozenset((RECALL.name,) if self.has_recall else ())

    def answer_own(self, call: ToolCall) -> Segment | None:
        """The result of a call that lamina answers; None if the tool is the client's."""
        if call.name not in self.own_names:
            return None
        return answer_recall(self.log, call, ledger=self.ledger)

    def recall(self, key: str) -> str:
        """The full text behind a recall handle or behind the key of a digest."""
        segments = recall(self.log, key, ledger=self.ledger)
        return "\n".join(text_of(segment.parts) for segment in segments)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Everything that is not sent in full: what it is, why, how large, and the handle for `recall`."""
        return list_left_out(self.envelope)

    @property
    def recall_tool(self) -> dict[str, Any] | None:
        """The recall tool in the words of the request, to be the last of the tools from now on.

        None while nothing was lowered, and if no handles are shown.
        """
        head = self.envelope.head
        if self.dialect is None:
            return None
        if self.has_recall:
            head = RequestHead(parameters=head.parameters)  # its name is taken otherwise, by this very tool
        elif not self.has_handles or not (self.ledger.lines or self.ledger.folds):
            return None
        return write_recall(self.dialect, head)

    def answer(self, call: Any) -> dict[str, Any]:
        """Answer a call of the recall tool: returns the message to append after the model's answer.

        `call` is the call as the API wrote it. A problem, such as an unknown key, is an answer too.
        """
        if self.dialect is None:
            raise BadInput(
                "this request has no dialect", place="answer", hint="use what fit_request returned"
            )
        own_call = read_call(call)
        question = call_segment(own_call.name, own_call.arguments, id=own_call.id)
        result = answer_recall(self.log, own_call, ledger=self.ledger)
        message: dict[str, Any] = render_turns([question, result], self.dialect, self.envelope.head)[-1]
        return message
