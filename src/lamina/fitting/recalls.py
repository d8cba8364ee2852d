"""The recall tool, and what it brings back: a whole text, a slice of it, or the places where a text occurs.

The model's own `recall` calls are answered in pieces of at most `PIECE` characters, so that recalling
something never fills the window again. No store is needed: the log has everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.build import build
from lamina.core.layout import Layout
from lamina.core.recall import recall
from lamina.core.text.characters import fold_case, quote_text
from lamina.core.values import Ledger, RequestHead, Segment, ToolCall
from lamina.core.wording import text_of
from lamina.dialects.json_values import read_field
from lamina.dialects.port import Dialect, PlainHead, Tool
from lamina.dialects.translate import choose_options
from lamina.errors import BadInput, NotFound
from lamina.segments import result, user

PIECE = 8_000
"""How many characters one call of the recall tool brings back at most."""

AROUND = 200
"""How many characters are shown on either side of a match."""

MATCHES = 20
"""How many matches are shown."""

TURN_FIELDS = ("messages", "input", "contents")
"""Where the requests of the APIs have their turns."""

_SHOWN_KEY = 80
"""How many characters of a key that is not there are quoted."""

_KEY_HINT = 'give a key as it stands in recall("...") or recall="..." above'
"""What a model should do about a key that is not there."""

RECALL = Tool(
    name="recall",
    description=(
        "Brings back the full text of something that was shortened or left out above. "
        'Give the key that stands in recall("..."). Long texts come in pieces: go on with `start`, '
        "or give `find` to see only the places where a text occurs."
    ),
    schema={
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "The key, such as k1f2e3d4c5b6."},
            "start": {"type": "integer", "description": "The character to begin with; 0 if left out."},
            "find": {"type": "string", "description": "A text to look for, whatever its case."},
        },
        "required": ["key"],
    },
)
"""The tool with which a model reads what was lowered.

A session has it from the first request on or never, since a new tool changes the prefix. A wrapped client
adds it at the first cut, which changes the prefix anyway.
"""


def write_recall(dialect: Dialect, head: RequestHead) -> dict[str, Any] | None:
    """The recall tool in the words of the dialect, if it can be added to a head.

    None if the client has taken its name, or if the dialect cannot express it.
    """
    takes_tool = dialect.head.takes_tool
    # Of several choices (`n` of Chat Completions), one may call a tool while another has answered.
    if takes_tool is not None and not takes_tool(head):
        return None
    plain = dialect.head.read(head)
    if any(tool.name == RECALL.name for tool in plain.tools):
        return None
    written = dialect.head.write(PlainHead(model=plain.model, tools=(RECALL,)))
    return next(iter(written.head.tools), None)


class TextMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the text occurs: its first character, and the text around it."""

    at: int
    text: str


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """What `recall` found behind a key.

    It is `text` from character `start` on, of `total` characters, or the `matches` of a search with `more`
    that are not shown.
    """

    key: str
    text: str
    start: int = 0
    total: int = 0
    matches: tuple[TextMatch, ...] = ()
    more: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def recall_text(
    log: Sequence[Segment], key: str, *, ledger: Ledger, part: tuple[int, int] | None = None, find: str = ""
) -> Recalled:
    """The full text, a `part` of it as (start, length), or the text around each match of `find`."""
    whole = "\n".join(text_of(segment.parts) for segment in recall(log, key, ledger=ledger))
    if find:
        return _find_matches(key, whole, find)
    start, length = part or (0, len(whole))
    if start < 0 or length < 0:
        raise BadInput(f"{part!r}", place="part", hint="give (start, length) in characters, from 0")
    return Recalled(key=key, text=whole[start : start + length], start=start, total=len(whole))


def answer_recall(log: Sequence[Segment], call: ToolCall, *, ledger: Ledger) -> Segment:
    """The result of a recall that the model asked for. A problem is a result, too."""
    try:
        key, start, find = _read_arguments(call)
        text = answer_recall_text(log, key, ledger=ledger, start=start, find=find)
    except NotFound:
        problem = f"nothing has the key {quote_text(key[:_SHOWN_KEY])}; {_KEY_HINT}"
        return result(problem, id=call.id, name=call.name, error=True)
    except BadInput as error:
        return result(str(error), id=call.id, name=call.name, error=True)
    return result(text, id=call.id, name=call.name, error=False)


def answer_recall_text(
    log: Sequence[Segment], key: str, *, ledger: Ledger, start: int = 0, find: str = ""
) -> str:
    """What a model reads: the text, one piece of it with its place, or a list of matches."""
    if find:
        return _list_matches(recall_text(log, key, ledger=ledger, find=find), find)
    piece = recall_text(log, key, ledger=ledger, part=(start, PIECE))
    next_piece = ""
    if piece.end < piece.total:
        next_piece = f"; go on with start={piece.end}"
    elif start == 0:
        return piece.text  # the whole text: its place says nothing
    return f"[characters {start:,} to {piece.end:,} of {piece.total:,}{next_piece}]\n{piece.text}"


def read_call(call: Any) -> ToolCall:
    """Read a call of a tool as any API writes it: a dict, an object of an SDK, or a `ToolCall`."""
    if isinstance(call, ToolCall):
        return call
    function = _read_first(call, "function", "function_call") or call
    name = _read_first(function, "name")
    if not isinstance(name, str):
        hint = "pass one call of the model's answer"
        raise BadInput(f"{type(call).__name__} is not a call", place="call", hint=hint)
    arguments = _read_first(function, "arguments", "input", "args")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {})
    # An item of the Responses API has an `id` of its own beside the `call_id` that its result answers.
    call_id = _read_first(call, "call_id", "id")
    return ToolCall(id=str(call_id or ""), name=name, arguments=arguments)


def _read_first(holder: Any, *names: str) -> Any:
    """The first of these fields that has a value, or None."""
    for name in names:
        value = read_field(holder, name)
        if value:
            return value
    return None


def render_turns(segments: Sequence[Segment], dialect: Dialect, head: RequestHead) -> tuple[Any, ...]:
    """An answer with its results as the messages, items or contents of a dialect."""
    # The API wants the user to speak first. That message is taken away again.
    envelope = build(
        (user("."), *segments),
        head=head,
        options=choose_options(dialect, head, layout=Layout(context="logged")),
    )
    return tuple(plain_turn(turn) for turn in read_turns(dialect.wire.render(envelope))[1:])


def read_turns(request: Mapping[str, Any]) -> tuple[Any, ...]:
    """The messages, items or contents of a request, as they came. A text is one turn of the user."""
    for name in TURN_FIELDS:
        match request.get(name):
            case list() | tuple() as turns:
                return tuple(turns)
            case str(text):
                return ({"role": "user", "content": text},)
    return ()


def plain_turn(turn: Any) -> Any:
    """A turn as plain JSON values, so that it can be stored and is the same after a restart."""
    if hasattr(turn, "model_dump"):
        return turn.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(turn, Mapping):
        return {name: plain_turn(value) for name, value in turn.items()}
    if isinstance(turn, list | tuple):
        return [plain_turn(value) for value in turn]
    return turn


def _read_arguments(call: ToolCall) -> tuple[str, int, str]:
    """Read `key`, `start` and `find`. Raises BadInput, in words for the model, if one is wrong."""
    hint = 'give {"key": "..."}, and `start` or `find` if you like'
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        raise BadInput("the arguments are not JSON", place="recall", hint=hint) from None
    match arguments:
        case {"key": str(key)}:
            start = arguments.get("start") or 0
            find = arguments.get("find") or ""
        case _:
            raise BadInput("no key", place="recall", hint=hint)
    if not isinstance(start, int) or not isinstance(find, str):
        raise BadInput(f"{start!r}, {find!r}", place="recall", hint="start is a number, find a text")
    return key, start, find


def _list_matches(recalled: Recalled, find: str) -> str:
    if not recalled.matches:
        return f"[{quote_text(find)} does not occur in its {recalled.total:,} characters]"
    lines = [f"[at character {match.at:,}]\n{match.text}" for match in recalled.matches]
    if recalled.more:
        lines.append(f"[{recalled.more:,} more places]")
    return "\n".join(lines)


def _find_matches(key: str, whole: str, find: str) -> Recalled:
    """Search a text, whatever its case.

    `fold_case` keeps the length of a text, so the places are those in the text itself, and a slice can be
    asked for there.
    """
    folded_text = fold_case(whole)
    folded_find = fold_case(find)
    matches: list[TextMatch] = []
    more = 0
    at = folded_text.find(folded_find)
    while at >= 0:
        if len(matches) < MATCHES:
            context = whole[max(at - AROUND, 0) : at + len(find) + AROUND]
            matches.append(TextMatch(at=at, text=context))
        else:
            more += 1
        at = folded_text.find(folded_find, at + len(folded_find))
    return Recalled(key=key, text="", total=len(whole), matches=tuple(matches), more=more)
