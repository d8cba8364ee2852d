"""A flat prompt as a log: its turns, where it has the layout of this dialect, else one text as it is.

A prompt is split only if writing its turns gives the same prompt, every call has its result, and no text
calls itself system text after somebody has spoken: a label in the middle may be somebody's content, and
must not gain a voice by being read. Parameters are the head; a flat prompt has no tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Head, Part, Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.named_files import path_of
from lamina.dialects.pairing import CallStep, id_at
from lamina.dialects.port import ParsedRequest, ParseMemo, Request, came_from
from lamina.dialects.text.layout import TextTurn, split
from lamina.errors import BadInput

NAME = "text"


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The prompt as a log, everything else as a head."""
    if not isinstance(request, Mapping):
        raise BadInput(f"a request of type {type(request).__name__}", hint="give an object with a prompt")
    prompt = prompt_in(request)
    pieces = _segments([turn for turn, _ in split(prompt) or ()]) or [(prompt, _whole(prompt))]
    if memo is not None:
        pieces = _as_before(pieces, memo)
    parameters = {name: value for name, value in request.items() if name != "prompt"}
    return ParsedRequest(log=tuple(segment for _, segment in pieces), head=Head(parameters=parameters))


def prompt_in(request: Request) -> str:
    prompt = request.get("prompt")
    if isinstance(prompt, str) and prompt:
        return prompt
    found = "empty" if prompt == "" else f"of type {type(prompt).__name__}"
    raise BadInput(f"the prompt is {found}", place="prompt", hint="give one text that is not empty")


def spoken(text: str) -> Segment:
    """What a model said."""
    return _segment(Role.ASSISTANT, "assistant", Text(text), text)


_Piece = tuple[TextTurn | str, Segment]
"""A segment, and what it was made from."""

_BLANK = Segment(role=Role.USER, kind="user", parts=())


def _as_before(pieces: list[_Piece], memo: ParseMemo) -> list[_Piece]:
    """The same segments as before, as far as the prompt is what it was."""
    known: list[_Piece] = [(made_from, segments[0]) for made_from, segments in memo.known]
    same = 0
    for (now, _), (before, _) in zip(pieces, known, strict=False):
        if now != before:
            break
        same += 1
    pieces = known[:same] + pieces[same:]
    memo.known = [(made_from, (segment,)) for made_from, segment in pieces]
    return pieces


def _whole(prompt: str) -> Segment:
    """A prompt that is sent as it is; one that is blank says nothing, and is kept all the same."""
    part = Text(prompt) if not is_blank(prompt) else Raw(dialect=NAME, data=prompt)
    segment = _segment(Role.USER, "user", part, prompt)
    segment.meta["wire"]["whole"] = True
    return segment


def _segments(turns: Sequence[TextTurn]) -> list[_Piece]:
    """The turns as segments; none if they are not a conversation that can be sent as it is."""
    reader = _Reader()
    pieces: list[_Piece] = []
    for turn in turns:
        segment = reader.read(turn)
        if segment is None:
            return []
        pieces.append((turn, segment))
    return [] if reader.step.waiting else pieces


class _Reader:
    """Reads turns in order. `before` is the voice of the last one."""

    def __init__(self) -> None:
        self.step = CallStep()
        self.before = "system"

    def read(self, turn: TextTurn) -> Segment | None:
        """The segment of a turn, None where it may not stand."""
        before, self.before = self.before, turn.voice
        if turn.voice in ("answer", "failure"):
            return self._result(turn)
        if self.step.waiting and before != "call":
            return None
        if turn.voice == "call":
            return self._call(turn, before)
        if self.step.waiting or is_blank(turn.text) or (turn.voice == "system" and before != "system"):
            return None
        self.step = CallStep()
        return _segment(Role(turn.voice), turn.voice, Text(turn.text), turn.text)

    def _call(self, turn: TextTurn, before: str) -> Segment:
        if before != "call":
            self.step = CallStep()
        call = ToolCall(id=id_at(len(self.step.calls), turn.name), name=turn.name, arguments=turn.text)
        self.step.add(call)
        joins = before in ("assistant", "call")
        return _segment(Role.ASSISTANT, "tool_call", call, turn.text, joins=joins)

    def _result(self, turn: TextTurn) -> Segment | None:
        at = self.step.take(turn.name)
        if at is None:
            return None
        call = self.step.calls[at]
        path = path_of(call.arguments)
        result = ToolResult(
            id=call.id, content=(Text(turn.text),), name=call.name, error=turn.voice == "failure"
        )
        return _segment(Role.TOOL, "tool_result", result, turn.text, attrs={"path": path} if path else None)


def _segment(
    role: Role,
    kind: str,
    part: Part,
    message: Any,
    *,
    joins: bool = False,
    attrs: dict[str, str] | None = None,
) -> Segment:
    meta = came_from(_BLANK, NAME, message, first=not joins, count=1)
    return Segment(
        role=role, kind=kind, parts=(part,), attrs=attrs or {}, joins=joins, origin=NAME, meta=meta
    )
