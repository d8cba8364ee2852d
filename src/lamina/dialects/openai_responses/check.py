"""The rules of the Responses API, each a small function over a request; none changes anything.

R1 to R9 are the rules that the API words itself. Values of a shape that another rule reports are passed
over, so that one fault is told once. What only the server knows is not judged: calls of a response that the
request continues, and whether an id that was given to an item had reasoning before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.core.values import Ledger, Role
from lamina.dialects.openai_responses.items import (
    LONGEST_ID,
    NAMED,
    OUTPUT_OF,
    OUTPUTS,
    PHASES,
    SAFE_NAME,
    id_field,
    id_fits,
    id_may_pair,
    leads,
    own_id,
    role_of,
    sort_of,
)
from lamina.dialects.openai_responses.parse import CHAINS, as_item, continues, may_be_a_call
from lamina.dialects.openai_responses.parts import MARKED, MARKER, WORDS, fits, plain
from lamina.dialects.port import CheckMemo, Request, Violation
from lamina.dialects.rechecking import recheck
from lamina.errors import BadInput

Found = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""

Json = Mapping[str, Any]


class ItemView:
    """An item as the rules look at it: empty where it is not of the shape that it should be.

    `id` is that by which a call and its output are paired; parts come with their place in the item.
    """

    __slots__ = ("at", "id", "parts", "role", "sort", "wire")

    def __init__(self, item: Any, at: int) -> None:
        self.at = at
        try:
            self.wire: Json = as_item(item)
        except BadInput:
            self.wire = {}
        self.sort = sort_of(self.wire)
        self.role = role_of(self.wire) if self.sort else None
        paired = self.sort in OUTPUT_OF or self.sort in OUTPUTS
        id_ = self.wire.get(id_field(self.wire)) if paired else ""
        self.id = id_ if isinstance(id_, str) else ""
        self.parts = _parts(self.wire, self.sort)

    @property
    def place(self) -> str:
        return f"input[{self.at}]"


class EarlierItems:
    """What the rules need to know of earlier items: ids that are taken, and what only the server has."""

    def __init__(self) -> None:
        self.calls: set[str] = set()
        self.answered: set[str] = set()
        self.items: set[str] = set()
        self.refers = False

    def add(self, view: ItemView) -> None:
        if view.sort in OUTPUT_OF:
            self.calls.add(view.id)
        elif view.sort in OUTPUTS:
            self.answered.add(view.id)
        self.items.add(own_id(view.wire))
        self.refers = self.refers or may_be_a_call(view.wire)


class ResponsesReading(NamedTuple):
    """A request, read once for all rules: the items to look at, and what is known of those before them."""

    request: Request
    items: Sequence[ItemView]
    past: EarlierItems


Rule = Callable[[ResponsesReading], Found]


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. Nothing here is bound to the past, so the ledger is not asked."""
    del ledger
    if not isinstance(request, Mapping):
        return [Violation(rule="something_is_asked", place="", message="not an object")]
    return check_again(request)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """The same, at the end only of a request that grows."""

    def apply_rules(past: EarlierItems, _: int, views: list[ItemView]) -> list[Violation]:
        reading = ResponsesReading(request, views, past)
        return [
            Violation(rule=name, place=place, message=message)
            for name, rule in RULES.items()
            for place, message in rule(reading)
        ]

    return recheck(
        _given(request),
        memo,
        basis=(request.get("store"), continues(request)),
        past=EarlierItems,
        view=ItemView,
        seam=_begins_to_speak,
        rules=apply_rules,
    )


def _begins_to_speak(before: ItemView, view: ItemView) -> bool:
    return view.role is Role.ASSISTANT and before.role is not Role.ASSISTANT


def something_is_asked(reading: ResponsesReading) -> Found:
    """The input is text or a list of items, and not empty where nothing else is asked."""
    given = reading.request.get("input")
    if given is not None and not isinstance(given, str | list | tuple):
        yield "input", "neither text nor a list of items"
    elif not given and not any(reading.request.get(name) for name in CHAINS):
        yield "input", "empty, and the request continues nothing"
    if not isinstance(reading.request.get("instructions", ""), str | None):
        yield "instructions", "not text"


def items_say_what_they_are(reading: ResponsesReading) -> Found:
    """Each item is an object with a type, or a message; a reference says what it refers to."""
    for view in reading.items:
        if not view.sort:
            yield view.place, "not an object with a type"
        elif view.sort == "item_reference" and not own_id(view.wire):
            yield f"{view.place}.id", "missing, empty or not text"


def roles_are_known(reading: ResponsesReading) -> Found:
    for view in reading.items:
        if view.sort == "message" and view.role is None:
            yield f"{view.place}.role", "not a role of this API"


def outputs_have_calls(reading: ResponsesReading) -> Found:
    """R1: an output answers one call that stands before it, or that only the server knows, once."""
    waiting: set[str] = set()
    answered: set[str] = set()
    elsewhere = reading.past.refers or continues(reading.request)
    for view in reading.items:
        elsewhere = elsewhere or may_be_a_call(view.wire)
        if view.sort in OUTPUT_OF:
            waiting.add(view.id)
            answered.discard(view.id)
        elif view.sort in OUTPUTS and view.id:
            again = view.id in answered or (view.id in reading.past.answered and view.id not in waiting)
            if again or (view.id not in waiting and not elsewhere):
                yield view.place, f"answers no call that waits: {view.id!r}"
            waiting.discard(view.id)
            answered.add(view.id)


def calls_are_answered(reading: ResponsesReading) -> Found:
    """R2: each call has an output before the model speaks again, or the request ends."""
    waiting: dict[str, str] = {}
    speaking = False
    for view in reading.items:
        speaks = view.role is Role.ASSISTANT
        if speaks and not speaking:
            yield from _unanswered(waiting)
            waiting = {}
        speaking = speaks
        if view.sort in OUTPUT_OF and view.id:
            waiting[view.id] = view.place
        elif view.sort in OUTPUTS:
            waiting.pop(view.id, None)
    yield from _unanswered(waiting)


def reasoning_is_followed(reading: ResponsesReading) -> Found:
    """R3: reasoning stands before the item that it led to."""
    follows = False
    for view in reversed(reading.items):
        if view.sort != "reasoning":
            follows = leads(view.wire)
        elif not follows:
            yield view.place, "no item of the model follows this reasoning"


def reasoning_can_be_read_again(reading: ResponsesReading) -> Found:
    """R4: where nothing is stored, reasoning needs its encrypted content, and nothing can be referred to."""
    if reading.request.get("store") is not False:
        return
    for view in reading.items:
        if view.sort == "reasoning" and not view.wire.get("encrypted_content"):
            yield view.place, "no encrypted_content, and nothing is stored"


def phases_are_known(reading: ResponsesReading) -> Found:
    """R5: the phase of a message is one that the API gave, and the assistant's."""
    for view in reading.items:
        phase = view.wire.get("phase") if view.sort == "message" else None
        if phase is not None and (phase not in PHASES or view.role is not Role.ASSISTANT):
            yield f"{view.place}.phase", "not a phase of an assistant message"


def a_trigger_stands_last(reading: ResponsesReading) -> Found:
    """R6: what triggers a compaction is the last item."""
    for view in reading.items[:-1]:
        if view.sort == "compaction_trigger":
            yield view.place, "items stand after it"


def one_past_is_continued(reading: ResponsesReading) -> Found:
    """R7: a request continues a response or a conversation, not both."""
    if reading.request.get("previous_response_id") and reading.request.get("conversation"):
        yield "conversation", "the request has a previous_response_id too"


def truncation_is_known(reading: ResponsesReading) -> Found:
    """R8: what is too long is refused, or truncated from its start."""
    if reading.request.get("truncation") not in (None, "auto", "disabled"):
        yield "truncation", "neither auto nor disabled"


def compactions_are_whole(reading: ResponsesReading) -> Found:
    """R9: a compaction goes back as it came."""
    for view in reading.items:
        if view.sort == "compaction" and not _text(view.wire.get("encrypted_content")):
            yield view.place, "no encrypted_content"


def call_ids_fit(reading: ResponsesReading) -> Found:
    """The id that pairs a call with its output is text of 1 to 64 characters."""
    for view in reading.items:
        if view.sort in OUTPUT_OF or view.sort in OUTPUTS:
            id_ = view.wire.get(id_field(view.wire))
            if not isinstance(id_, str) or not id_may_pair(id_):
                yield f"{view.place}.{id_field(view.wire)}", f"not text of 1 to {LONGEST_ID} characters"


def call_ids_are_unique(reading: ResponsesReading) -> Found:
    """No two calls share the id by which they are answered."""
    seen: set[str] = set()
    for view in reading.items:
        if view.sort in OUTPUT_OF and view.id:
            if view.id in seen or view.id in reading.past.calls:
                yield view.place, f"a call before it has {view.id!r} too"
            seen.add(view.id)


def item_ids_are_unique(reading: ResponsesReading) -> Found:
    """No item is given twice: "Duplicate item found with id"."""
    seen: set[str] = set()
    for view in reading.items:
        id_ = own_id(view.wire)
        if id_ and (id_ in seen or id_ in reading.past.items):
            yield f"{view.place}.id", f"an item before it has {id_!r} too"
        seen.add(id_)


def item_ids_fit_their_type(reading: ResponsesReading) -> Found:
    """The id of a message begins with msg, of a function call with fc, of reasoning with rs."""
    for view in reading.items:
        if not id_fits(view.wire):
            yield f"{view.place}.id", "not an id of an item of this type"


def calls_are_whole(reading: ResponsesReading) -> Found:
    """A call has a name and arguments, or an input, of text; an output has text or parts."""
    for view in reading.items:
        needed = _NEEDED.get(view.sort, ())
        for name in needed:
            if not isinstance(view.wire.get(name), str):
                yield f"{view.place}.{name}", "not text"
        given = view.wire.get("output", "")
        if view.sort in _ANSWERED and not (isinstance(given, str | list | tuple) and "output" in view.wire):
            yield f"{view.place}.output", "neither text nor parts"


def names_fit_the_pattern(reading: ResponsesReading) -> Found:
    """Names of functions match [a-zA-Z0-9_-]{1,64}."""
    named = [(f"tools[{i}]", tool) for i, tool in enumerate(_objects(reading.request.get("tools")))]
    named = [(place, tool) for place, tool in named if tool.get("type") in ("function", "custom")]
    named += [(view.place, view.wire) for view in reading.items if view.sort in NAMED]
    for place, holder in named:
        name = holder.get("name")
        if isinstance(name, str) and not SAFE_NAME.fullmatch(name):
            yield f"{place}.name", "does not match [a-zA-Z0-9_-]{1,64}"


def tools_are_whole(reading: ResponsesReading) -> Found:
    """A definition says its type, and that of a function its name, without a holder around it."""
    for i, tool in enumerate(_objects(reading.request.get("tools"))):
        sort = tool.get("type")
        if not isinstance(sort, str):
            yield f"tools[{i}].type", "missing or not text"
        elif sort in ("function", "custom") and not _text(tool.get("name")):
            yield f"tools[{i}].name", "missing or not text"


def content_is_there(reading: ResponsesReading) -> Found:
    """The content of a message is text, or at least one part."""
    for view in reading.items:
        content = view.wire.get("content")
        there = isinstance(content, str) or (isinstance(content, list | tuple) and len(content) > 0)
        if view.sort == "message" and not there:
            yield f"{view.place}.content", "neither text nor parts"


def parts_say_what_they_are(reading: ResponsesReading) -> Found:
    """Each part is an object that says its type, and holds text where it says text."""
    for view in reading.items:
        for inside, part in view.parts:
            sort = part.get("type")
            if not isinstance(sort, str):
                yield f"{view.place}.{inside}", "not an object with a type"
            elif sort in WORDS and not isinstance(part.get(WORDS[sort]), str):
                yield f"{view.place}.{inside}.{WORDS[sort]}", "not text"


def parts_fit_their_role(reading: ResponsesReading) -> Found:
    """The assistant says output_text and refusal; everyone else input_text, input_image and input_file."""
    for view in reading.items:
        role = str(view.wire.get("role")) if view.sort == "message" else "user"
        for inside, part in view.parts:
            if isinstance(part.get("type"), str) and not fits(part, role):
                yield f"{view.place}.{inside}", f"a part of type {part['type']!r} cannot stand here"


def markers_stand_on_parts(reading: ResponsesReading) -> Found:
    """A prompt_cache_breakpoint stands on a part that may have one, nowhere else."""
    for i, tool in enumerate(_objects(reading.request.get("tools"))):
        if MARKER in tool:
            yield f"tools[{i}]", f"has a {MARKER}"
    for view in reading.items:
        if MARKER in view.wire:
            yield view.place, f"has a {MARKER} that belongs on a part of its content"
        for inside, part in view.parts:
            if part.get(MARKER) is not None and str(part.get("type")) not in MARKED:
                yield f"{view.place}.{inside}", f"a part of this type has no {MARKER}"


def cache_options_are_known(reading: ResponsesReading) -> Found:
    """Modes and lifetimes of the cache are those that there are."""
    options = _object(reading.request.get("prompt_cache_options"))
    for name, known in (("mode", ("implicit", "explicit")), ("ttl", ("30m", "12h"))):
        if options.get(name) is not None and options[name] not in known:
            yield f"prompt_cache_options.{name}", f"not one of {', '.join(known)}"
    if reading.request.get("prompt_cache_retention") not in (None, "in_memory", "24h"):
        yield "prompt_cache_retention", "neither in_memory nor 24h"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        something_is_asked,
        items_say_what_they_are,
        roles_are_known,
        outputs_have_calls,
        calls_are_answered,
        reasoning_is_followed,
        reasoning_can_be_read_again,
        phases_are_known,
        a_trigger_stands_last,
        one_past_is_continued,
        truncation_is_known,
        compactions_are_whole,
        call_ids_fit,
        call_ids_are_unique,
        item_ids_are_unique,
        item_ids_fit_their_type,
        calls_are_whole,
        names_fit_the_pattern,
        tools_are_whole,
        content_is_there,
        parts_say_what_they_are,
        parts_fit_their_role,
        markers_stand_on_parts,
        cache_options_are_known,
    )
}

_NEEDED = {"function_call": ("name", "arguments"), "custom_tool_call": ("name", "input")}
_ANSWERED = ("function_call_output", "custom_tool_call_output")


def _given(request: Request) -> Sequence[Any]:
    given = request.get("input")
    return (given,) if isinstance(given, str) and given else given if isinstance(given, list | tuple) else ()


def _parts(wire: Json, sort: str) -> Sequence[tuple[str, Json]]:
    name = "content" if sort == "message" else "output" if sort in _ANSWERED else ""
    given = wire.get(name) if name else None
    if not isinstance(given, list | tuple):
        return ()
    return [(f"{name}[{j}]", _object(part)) for j, part in enumerate(given)]


def _unanswered(waiting: Mapping[str, str]) -> Found:
    for id_, place in waiting.items():
        yield place, f"no output follows for {id_!r}"


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _objects(value: Any) -> Sequence[Json]:
    return [_object(one) for one in value] if isinstance(value, list | tuple) else ()


def _object(value: Any) -> Json:
    try:
        return plain(value)
    except BadInput:
        return {}
