"""What a client gets from a model that only recalls: a sentence that says so.

After `lamina.fitting.recall_loop.ROUNDS` recalls in a row the model is told to answer. If it recalls again
and has said nothing at all, its answer would be empty. Clients take an empty answer for a broken one, and
most APIs refuse it as a part of the history. So the answer gets this one sentence, in the words of its
dialect. Answers and events are dicts, or objects of an SDK: those come back as objects of the same SDK.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.dialects.port import Dialect
from lamina.fitting.recalls import plain_turn

NOTICE = "[lamina: the model recalled earlier parts of this conversation again and again, and did not answer]"


def fill_answer(answer: Any, dialect: Dialect) -> Any:
    """Return a whole answer, or the last chunk of one, that says the notice and nothing else."""
    plain_answer = plain_turn(answer)
    if not isinstance(plain_answer, dict):
        return answer
    return _cast_value(dialect.write_answer(plain_answer, NOTICE), answer)


def fill_stream(closing: Sequence[Any], dialect: Dialect, *, index: int, stream: Any = None) -> list[Any]:
    """Return the events that end a stream, with the notice before them or in them.

    `index` says how many blocks or items of the answer the client has seen, and `stream` is the SDK's, if
    the events are its objects.
    """
    if not closing:
        return []
    plain_events = [plain_turn(event) for event in closing]
    originals = {
        plain_event.get("type"): event for plain_event, event in zip(plain_events, closing, strict=True)
    }
    filled_events: list[Any] = []
    for event in dialect.write_closing_events(plain_events, NOTICE, index):
        original = originals.get(event.get("type"))
        if original is None:
            filled_events.append(_cast_event(event, stream))
        else:
            filled_events.append(_cast_value(event, original))
    return filled_events


def _cast_value(value: dict[str, Any], original: Any) -> Any:
    """Return a value as an object of the original's class; the value itself if the original is a dict.

    What the original has beside its fields stays, such as the id of the request.
    """
    if isinstance(original, dict):
        return value
    model = type(original)
    try:
        rebuilt = model.model_validate(value)
    except ValueError:  # a server that is only nearly compatible; the SDKs do not check answers either
        rebuilt = model.model_construct(**value)
    fields = {name: getattr(rebuilt, name) for name in rebuilt.model_fields_set}
    return original.model_copy(update=fields)


def _cast_event(event: dict[str, Any], stream: Any) -> Any:
    """Return an event as an object of the SDK whose stream this is. Without a stream it stays a dict.

    The SDKs of Anthropic and OpenAI have a class for each type of event, and their streams have the union.
    """
    event_types = getattr(stream, "_cast_to", None)
    if event_types is None:
        return event
    from pydantic import TypeAdapter  # noqa: PLC0415 - such an SDK has it; lamina does not need it

    return TypeAdapter(event_types).validate_python(event)
