"""What a turn's request holds, in words: the classes of content by which a run is counted."""

from __future__ import annotations

from tests.fuzzing.profiles import DIALECTS, MODELS
from tests.fuzzing.turns import Turn
from tests.fuzzing.validity.breach import is_blank
from tests.fuzzing.words import IMITATIONS, SCRIPTS

_WINDOWS = ((600, "window 500"), (4500, "window 1-4k"), (10_000, "window 8k"))


def contents_of(turn: Turn) -> set[str]:
    """The classes that this turn's request belongs to."""
    settings = turn.settings
    found = {settings.dialect, f"model {settings.model}", _window(settings.window)}
    found.add(f"counter {settings.counter or 'own'}")
    if settings.tools:
        found.add("tools")
    if settings.answer_schema is not None:
        found.add("answer schema")
    if settings.keeps_objects:
        found.add("kept objects")
    if settings.breakpoints == "plan":
        found.add("planned markers")
    if turn.came_breaches:
        found.add("invalid as it came")
    if turn.outcome.error is None and turn.sent_request == turn.came_request:
        found.add("passed as it came")
    found |= _of_messages(turn)
    text = "\n".join(block.text for block in turn.came_blocks)
    found |= {f"script {name}" for name, (unit, _) in SCRIPTS.items() if unit and unit[:8] in text}
    if any(imitation[:20] in text for imitation in IMITATIONS):
        found.add("imitated tags")
    if "cache_control" in turn.came or "prompt_cache_breakpoint" in turn.came:
        found.add("cache markers")
    return found


def _window(window: int) -> str:
    return next((name for limit, name in _WINDOWS if window < limit), "window 30k")


def _of_messages(turn: Turn) -> set[str]:
    messages = turn.messages
    found = {_SORTS[piece.sort] for message in messages for piece in message.pieces if piece.sort in _SORTS}
    calls = [piece for message in messages for piece in message.of("call")]
    asked = {piece.id for piece in calls}
    answered = {piece.id for message in messages for piece in message.of("result")}
    reminders = [message.pieces[0].text for message in messages if message.voice == "system"]
    happens = {
        "parallel calls": any(len(message.of("call")) > 1 for message in messages),
        "dangling calls": not asked <= answered,
        "orphan results": not answered <= asked,
        "results apart": any(message.apart and len(message.of("result")) > 1 for message in messages),
        "polling": any(piece.text == "{}" for piece in calls),
        "blank text": any(is_blank(piece.text) for message in messages for piece in message.of("text")),
        "prefill": bool(messages) and messages[-1].voice == "assistant",
        "system messages within": bool(reminders),
        "equal reminders": len(reminders) > len(set(reminders)),
        "chat only": not calls,
    }
    return found | {name for name, there in happens.items() if there}


_SORTS = {
    "thinking": "thinking",
    "redacted": "redacted thinking",
    "image": "images",
    "document": "documents",
    "item": "items of the API",
}

CONTENTS: tuple[str, ...] = (
    *DIALECTS,
    *dict.fromkeys(f"model {model}" for models in MODELS.values() for model in models),
    *(name for _, name in _WINDOWS),
    "window 30k",
    *(f"counter {name}" for name in ("own", "chars4", "strict", "estimate", "rfc")),
    *(f"script {name}" for name, (unit, _) in SCRIPTS.items() if unit),
    *_SORTS.values(),
    "tools",
    "answer schema",
    "kept objects",
    "planned markers",
    "cache markers",
    "imitated tags",
    "parallel calls",
    "dangling calls",
    "orphan results",
    "results apart",
    "polling",
    "blank text",
    "prefill",
    "system messages within",
    "equal reminders",
    "chat only",
    "invalid as it came",
    "passed as it came",
)
"""Every class of content."""
