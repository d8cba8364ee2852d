"""How many tokens a request has, counted from its wire format and not from lamina's entries.

Text is counted by the counter in use and framed with its own framing. What no counter measures is counted low
where lamina must not exceed the room, and high where it may say that nothing fits: pictures and documents
cost nothing, or at least the framing's flat price; what is encrypted costs a token for eight characters, or
what it costs as text. So the low count is never above what lamina should have counted, except where texts
that lamina counts together are counted apart here: a tokenizer may join the end of one with the beginning of
the next. `TOLERANCE` allows for that.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, Literal

from lamina.core import CHARS4, RFC, Counter
from lamina.core.tokens import BYTES4, ESTIMATE, STRICT
from lamina.core.values import Calibration
from lamina.models.counters import counter_for
from tests.fuzzing.history import Message, Piece, Settings
from tests.fuzzing.reading import Block, canonical, read
from tests.fuzzing.validity.breach import is_blank
from tests.fuzzing.writing import write

Json = Mapping[str, Any]

TOLERANCE = 2
"""Tokens for each block that may be missing from lamina's count: two texts counted apart can have one more
each."""

OPAQUE = 8
"""Characters of an encrypted block for each token, counted low: no estimate of what is in it is lower."""

Side = Literal["low", "high"]

_IMAGE = re.compile(r'"image/|data:image/')

STUB = (
    "[trimmed: read_file src/somewhere/some_name_of_a_file.py · 1,234,567 bytes · "
    'recall("k0123456789abcdef0123")]'
)
DIGEST = (
    '<digest covers="123" recall="fold-0123456789abcdef0123">\n'
    "Turns 1 to 25: 25 questions, 40 calls of 6 tools, 3 errors; recall it for what was said.\n</digest>"
)
"""About the smallest that lamina can make of a result, and of everything before the last step."""

COUNTERS: Mapping[str, Counter] = {
    "chars4": CHARS4,
    "bytes4": BYTES4,
    "strict": STRICT,
    "estimate": ESTIMATE,
    "rfc": RFC,
}


def counter_named(name: str, model: str) -> Counter:
    return COUNTERS[name] if name else counter_for(model)


def count(
    request: Json, dialect: str, counter: Counter, calibration: Calibration | None, side: Side = "low"
) -> int:
    """The tokens of a request; with what a provider has reported, if that lowers the count."""
    blocks = read(request, dialect)
    framing = counter.framing
    messages = sum(1 for before, block in pairwise([None, *blocks]) if block and _begins(block, before))
    raw = framing.request + framing.message * messages
    raw += sum(_cost(block, counter, side) for block in blocks if block.sort != "definition")
    raw += _schema_cost(request, counter)
    millis = min(calibration.millis if calibration else 1000, 1000)
    total = raw * framing.scale * millis // 1_000_000
    definitions = [block for block in blocks if block.sort == "definition"]
    if side == "low":
        tools = sum(counter.count(_bare(block)) for block in definitions)
    else:
        tools = sum(framing.tool + counter.count(block.data) for block in definitions)
    return total + tools + (framing.tools if definitions else 0)


def tolerance(request: Json, dialect: str) -> int:
    return TOLERANCE * len(read(request, dialect))


def floor(messages: Sequence[Message], settings: Settings, counter: Counter) -> int:
    """The tokens of about the smallest request that keeps what must be kept, made by hand.

    System text, tools, system messages within the conversation (equal ones once), items of the API's own, the
    prompt in full, the last step with its results as stubs, and one digest for each run between these.
    """
    kept = smallest(messages)
    plain = copy.copy(settings)
    plain.keeps_objects = False
    return count(write(kept, plain), settings.dialect, counter, None, "high")


def smallest(messages: Sequence[Message]) -> list[Message]:
    """The messages of that request."""
    whole = _sent_whole(messages)
    kept: list[Message] = []
    reminders: set[str] = set()
    left_out = False
    for i, message in enumerate(messages):
        must = i in whole or bool(message.of("item"))
        if message.voice == "system":
            must = message.pieces[0].text not in reminders
            reminders.add(message.pieces[0].text)
        if not must:
            left_out = True
            continue
        if left_out:
            kept.append(Message(voice="user", number=0, pieces=[Piece(sort="text", text=DIGEST)]))
            left_out = False
        in_whole = i in whole or message.voice == "system"
        kept.append(_stubbed(message) if in_whole else _items_of(message))
    return kept


def _sent_whole(messages: Sequence[Message]) -> set[int]:
    """Positions of the prompt, the last step, and steps that have an item of the API's among their calls."""
    prompt = max((i for i, m in enumerate(messages) if m.voice == "user" and not says_nothing(m)), default=-1)
    last = max((i for i, m in enumerate(messages) if m.voice == "assistant"), default=-1)
    if prompt > last:
        last = len(messages)
    while last > 0 and messages[last - 1].voice == "assistant":
        last -= 1  # messages of the model in a row are one
    begins = prompt
    while begins > 0 and _is_said_before(messages, begins):
        begins -= 1  # the user said several things in a row
    whole = {*range(max(begins, 0), prompt + 1), *range(last, len(messages))}
    for i, message in enumerate(messages):
        if _has_an_item_among_calls(message):
            answers = takewhile(lambda at: messages[at].voice == "tool", range(i + 1, len(messages)))
            whole.update((i, *answers))
    return whole


def _has_an_item_among_calls(message: Message) -> bool:
    calls = [i for i, piece in enumerate(message.pieces) if piece.sort == "call"]
    items = [i for i, piece in enumerate(message.pieces) if piece.sort == "item"]
    return bool(calls) and any(calls[0] < at < calls[-1] for at in items)


def says_nothing(message: Message) -> bool:
    return all(piece.sort == "text" and is_blank(piece.text) for piece in message.pieces)


def _items_of(message: Message) -> Message:
    return Message(voice=message.voice, number=message.number, pieces=message.of("item"))


def _is_said_before(messages: Sequence[Message], at: int) -> bool:
    """Whether the user speaks right before, perhaps with results of tools or system text in between."""
    before = next((m.voice for m in reversed(messages[:at]) if m.voice not in ("tool", "system")), "")
    return before == "user"


def _stubbed(message: Message) -> Message:
    twin = copy.deepcopy(message)
    twin.wire = None
    for piece in twin.of("result"):
        piece.data = None
        if len(piece.text) > len(STUB):
            piece.text = STUB
    return twin


def _begins(block: Block, before: Block | None) -> bool:
    """Whether a message begins here; calls in a row are read as one, and so are results."""
    if not block.opens or block.sort == "definition":
        return False
    continues = before is not None and block.role == before.role and block.sort in ("call", "result")
    return not continues


def _cost(block: Block, counter: Counter, side: Side) -> int:
    framing = counter.framing
    match block.sort:
        case "call":
            return framing.call + counter.count(block.name + "".join(block.texts) + framing.padding)
        case "result":
            pictures = len(_IMAGE.findall(block.data)) if side == "high" else 0
            said = counter.count("".join(block.texts) + framing.padding)
            return framing.result + said + pictures * framing.image
        case "image":
            return framing.image if side == "high" else 0
        case "document":
            return _document_cost(block, counter, side)
        case "thinking":
            return _thinking_cost(block, counter, side)
    return sum(counter.count(text) for text in block.texts)


def _document_cost(block: Block, counter: Counter, side: Side) -> int:
    if block.texts:
        return counter.count(block.text)
    return max(counter.framing.document, counter.count(block.data)) if side == "high" else 0


def _thinking_cost(block: Block, counter: Counter, side: Side) -> int:
    if side == "high":
        return counter.count(block.data)
    return counter.count(block.text) if block.texts else len(block.id) // OPAQUE


def _bare(definition: Block) -> str:
    """The text of a definition without the signs of JSON that no provider is known to count."""
    return definition.text.replace('"', "").replace("{", "").replace("}", "")


def _schema_cost(request: Json, counter: Counter) -> int:
    """The schema of a structured answer, which every provider adds to what the model reads."""
    config = request.get("config") or request
    generation = config.get("generationConfig") or config
    schemas = (
        (request.get("response_format") or {}).get("json_schema"),
        ((request.get("output_config") or {}).get("format") or {}).get("schema"),
        ((request.get("text") or {}).get("format") or {}).get("schema"),
        generation.get("responseJsonSchema") or generation.get("response_json_schema"),
    )
    text = "".join(canonical(schema) for schema in schemas if schema)
    return counter.count(text.replace('"', "").replace("{", "").replace("}", "")) if text else 0
