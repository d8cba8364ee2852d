"""Reads a flat prompt into a log: its turns, if it has the layout of this dialect, else one text.

A prompt is split only if writing its turns gives the same prompt, every call has its result, and no text
calls itself system text after somebody has spoken. A label in the middle may be somebody's content, and
must not become a turn of its own by being read. Parameters are the head: those of OpenAI's completions, which
most servers take. A flat prompt has no tools, no schema of its answer and no effort: they are named, never
written into the prompt.

`absorb` reads the completions of OpenAI and compatible servers, those of Ollama and of llama.cpp, and plain
text. The space after the cue belongs to the layout, so one space is removed: then the next prompt has the
same bytes.

`stream` shows the prompt as a prefix cache sees it, without the cue at its end: what the model writes after
the cue is the text of the next turn. A question that is no longer the last one becomes another block,
since this layout moves the empty line before it; everything before it stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.caches.stream import Sort, Stream, StreamBlock, encode_block
from lamina.core.text.characters import is_blank
from lamina.core.values import Part, Raw, RequestHead, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.head_table import HeadField, HeadTable
from lamina.dialects.json_values import list_or_empty, number_or_none, read_texts, text_or_empty, to_dict
from lamina.dialects.memos import ParsedPast, ParseMemo
from lamina.dialects.openai_chat.answers import read_first_choice
from lamina.dialects.origins import ORIGIN, WireOrigin
from lamina.dialects.pairing import CallStep, describe_result, make_call_id
from lamina.dialects.pieces import MessagePiece, require_request
from lamina.dialects.port import Absorbed, ParsedRequest, Request
from lamina.dialects.text.layout import BEGINNING, PromptOpening, TextTurn, Voice, split_turns
from lamina.dialects.usage import Usage, find_usage
from lamina.errors import BadInput

NAME = "text"

_TextPiece = tuple[TextTurn | str, Segment]
"""A segment, and the turn or the prompt that it was made from."""

_SORTS_AND_ROLES: dict[Voice, tuple[Sort, str]] = {
    "system": ("system", "system"),
    "user": ("text", "user"),
    "assistant": ("text", "assistant"),
    "call": ("call", "assistant"),
    "answer": ("result", "tool"),
    "failure": ("result", "tool"),
}

HEAD = HeadTable(
    fields=(
        HeadField("model", "model", str),
        HeadField("output", "max_tokens", number_or_none),
        HeadField("temperature", "temperature", number_or_none),
        HeadField("top_p", "top_p", number_or_none),
        HeadField("stop", "stop", read_texts, list),
        HeadField("stream", "stream", bool),
    ),
    silent=frozenset(("user", "n", "best_of", "seed", "stream_options", "logprobs", "echo", "cache_salt")),
)


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """The prompt as a log, everything else as a head.

    `User: Hi` with the cue under it is one turn of the user. `Hello there` has no label, so it is one segment
    as a whole.
    """
    require_request(request, "give an object with a prompt")
    log = _read_log(read_prompt(request), memo or ParseMemo(copies=False))
    parameters = dict(request)
    del parameters["prompt"]
    return ParsedRequest(log=log, head=RequestHead(parameters=parameters))


def read_prompt(request: Request) -> str:
    """The prompt of a request. Anything but one text that is not empty raises BadInput.

    The API also takes lists of prompts and of tokens, which are no conversation.
    """
    prompt = request.get("prompt")
    if isinstance(prompt, str) and prompt:
        return prompt
    problem = f"the prompt is of type {type(prompt).__name__}"
    if prompt == "":
        problem = "the prompt is empty"
    raise BadInput(problem, place="prompt", hint="give one text that is not empty")


def _read_log(prompt: str, memo: ParseMemo) -> tuple[Segment, ...]:
    """The segments of a prompt. Of one that grew, only what follows its opening is read.

    Turns that are as they were keep their segments.
    """
    opening: PromptOpening = memo.past.state or BEGINNING
    turns = split_turns(prompt, opening)
    pieces = _read_turns(turns)
    if not pieces and opening.turn_count:  # it is another prompt
        memo.past = msgspec.structs.replace(memo.past, state=None)
        return _read_log(prompt, memo)
    next_opening = opening.extend(turns)
    if not pieces:
        pieces = [(prompt, _make_whole_prompt(prompt))]
        next_opening = BEGINNING
    same_count = opening.turn_count
    for (source, _), old_source in zip(pieces, memo.past.sources.after(opening.turn_count), strict=False):
        if source != old_source:
            break
        same_count += 1
    unchanged = memo.past.first(same_count)
    new_pieces = pieces[same_count - opening.turn_count :]
    log = unchanged.log + tuple(segment for _, segment in new_pieces)
    memo.past = ParsedPast(
        sources=unchanged.sources.add([source for source, _ in new_pieces]),
        groups=unchanged.groups.add([(segment,) for _, segment in new_pieces]),
        log=log,
        state=next_opening,
    )
    return log


def _make_whole_prompt(prompt: str) -> Segment:
    """A prompt that is sent as it is. A blank prompt says nothing, and is kept as a `Raw` part."""
    part: Part = Text(prompt)
    if is_blank(prompt):
        part = Raw(dialect=NAME, data=prompt)
    return _make_segment(Role.USER, MessagePiece("user", part), prompt, notes={"whole": True})


def _read_turns(turns: Sequence[tuple[TextTurn, str]]) -> list[_TextPiece]:
    """The turns as segments, from the first one or from a question on.

    There are none if the turns cannot be sent as they are: a call has no result, or a result no call.
    """
    reader = _TurnReader()
    pieces: list[_TextPiece] = []
    for turn, _ in turns:
        segment = reader.read_turn(turn)
        if segment is None:
            return []
        pieces.append((turn, segment))
    if reader.step.waiting:
        return []
    return pieces


class _TurnReader:
    """Reads turns in order. `last_voice` is the voice of the last turn."""

    def __init__(self) -> None:
        self.step: CallStep[ToolCall] = CallStep()
        self.last_voice = "system"

    def read_turn(self, turn: TextTurn) -> Segment | None:
        """The segment of a turn; None if the turn may not stand where it stands.

        A question while a call waits, and system text after somebody spoke, may not stand there.
        """
        last_voice = self.last_voice
        self.last_voice = turn.voice
        match turn.voice:
            case "answer" | "failure":
                return self._read_result(turn)
            case "call":
                return self._read_call(turn, last_voice)
            case "system" if last_voice != "system":
                return None
        if self.step.waiting or is_blank(turn.text):
            return None
        self.step = CallStep()
        return _make_segment(Role(turn.voice), MessagePiece(turn.voice, Text(turn.text)), turn.text)

    def _read_call(self, turn: TextTurn, last_voice: str) -> Segment | None:
        """A call. Calls in a row are one step; any other call waits until the last step has its results.

        None if a call of the last step still waits.
        """
        if last_voice != "call":
            if self.step.waiting:
                return None
            self.step = CallStep()
        call_id = make_call_id(len(self.step.calls), turn.name)
        call = ToolCall(id=call_id, name=turn.name, arguments=turn.text)
        self.step.add(call)
        joins = last_voice in ("assistant", "call")
        return _make_segment(Role.ASSISTANT, MessagePiece("tool_call", call), turn.text, joins=joins)

    def _read_result(self, turn: TextTurn) -> Segment | None:
        """A result; None if no call of its name waits for one."""
        index = self.step.take(turn.name)
        if index is None:
            return None
        call = self.step.calls[index]
        is_error = turn.voice == "failure"
        result = ToolResult(id=call.id, content=(Text(turn.text),), name=call.name, error=is_error)
        piece = MessagePiece("tool_result", result, attrs=describe_result(call))
        return _make_segment(Role.TOOL, piece, turn.text)


def _make_segment(
    role: Role, piece: MessagePiece, text: str, *, joins: bool = False, notes: dict[str, Any] | None = None
) -> Segment:
    """The segment of a turn. One that joins another is not the first of its message."""
    origin = WireOrigin(dialect=NAME, message=text, is_first=not joins, count=1, notes=notes or {})
    return Segment(
        role=role,
        kind=piece.kind,
        parts=(piece.part,),
        attrs=piece.attrs,
        joins=joins,
        origin=NAME,
        meta={ORIGIN: origin},
    )


def absorb(response: Any) -> Absorbed:
    """A completion, as text, a dict, or an object of an SDK."""
    return absorb_stream((response,))


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order.

    An event is a text, or an object of one of several servers. The text that they make together is the
    reply, without the space after the cue.
    """
    texts: list[str] = []
    usage = Usage()
    stop = ""
    for event in events:
        chunk = {"response": event}
        if not isinstance(event, str):
            chunk = to_dict(event, "response")
        choice = read_first_choice({"choices": list_or_empty(chunk.get("choices"))})
        texts.append(_find_text(choice.get("text"), chunk.get("response"), chunk.get("content")))
        chunk_usage = find_usage(chunk)
        if chunk_usage != Usage():
            usage = chunk_usage
        reason = _find_text(choice.get("finish_reason"), chunk.get("done_reason"), chunk.get("stop_type"))
        stop = reason or stop
    reply = "".join(texts).removeprefix(" ")
    segments: tuple[Segment, ...] = ()
    if not is_blank(reply):
        segments = (_make_segment(Role.ASSISTANT, MessagePiece("assistant", Text(reply)), reply),)
    return Absorbed(segments=segments, usage=usage, stop=stop)


def _find_text(*values: Any) -> str:
    """The first of some values that is a text; "" if none is. Each server has one of several fields."""
    for text in filter(None, values):
        if isinstance(text, str):
            return text
    return ""


def stream(request: Request) -> Stream:
    """The prompt as blocks; one block, if the prompt does not have this dialect's layout.

    The text of a block begins with the line end that separates it from the one before.
    """
    require_request(request, "give an object with a prompt")
    prompt = read_prompt(request)
    turns = split_turns(prompt) or [(TextTurn("user", prompt), prompt)]
    blocks = []
    for index, (turn, text) in enumerate(turns):
        blocks.append(_make_block(index, turn, text))
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=tuple(blocks),
        key=text_or_empty(request.get("cache_salt")),
    )


def _make_block(index: int, turn: TextTurn, text: str) -> StreamBlock:
    """One turn as a block. Its place counts turns, since a prompt is one string."""
    sort, role = _SORTS_AND_ROLES[turn.voice]
    return StreamBlock(
        sort=sort,
        role=role,
        data=encode_block(text),
        place=f"prompt[{index}]",
        opens=True,
        name=turn.name,
    )
