"""What a client gets from a model that only recalls: a sentence that says so.

After `recall_loop.ROUNDS` recalls in a row the model is told to answer. If it recalls again
and has said nothing at all, its answer would be empty. Clients take an empty answer for a broken one, and
most APIs refuse it as a part of the history. So the answer gets this one sentence, in the words of its
dialect. Answers and events are dicts, or objects of an SDK: those come back as objects of the same SDK.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.dialects.json_values import read_field
from lamina.dialects.port import Dialect
from lamina.fitting.recalls import plain_turn

NOTICE = "[lamina: the model recalled earlier parts of this conversation again and again, and did not answer]"


def fill_answer(answer: Any, dialect: Dialect) -> Any:
    """A whole answer, or the last chunk of one, that says the notice and nothing else.

    What an object of an SDK has beside its fields stays, such as the id of the request.
    """
    plain_answer = plain_turn(answer)
    write = dialect.answers.write
    if write is None or not isinstance(plain_answer, dict):
        return answer
    filled_answer = write(plain_answer, NOTICE)
    if isinstance(answer, dict):
        return filled_answer
    rebuilt = _build_like(answer, filled_answer)
    fields = {name: getattr(rebuilt, name) for name in rebuilt.model_fields_set}
    return answer.model_copy(update=fields)


def fill_stream(closing: Sequence[Any], dialect: Dialect, *, index: int, stream: Any = None) -> list[Any]:
    """The events that end a stream, with the notice before them or in them.

    `index` says how many blocks or items of the answer the client has seen, and `stream` is the SDK's, if
    the events are its objects.
    """
    write_closing_events = dialect.answers.write_closing_events
    if write_closing_events is None or not closing:
        return list(closing)
    plain_events = [plain_turn(event) for event in closing]
    filled_events = write_closing_events(plain_events, NOTICE, index)
    if isinstance(closing[0], dict):
        return filled_events
    # An event of a type that the stream has sent is made like that one. Only a new type has to be looked up.
    samples = {read_field(event, "type"): event for event in closing}
    cast_events: list[Any] = []
    for event in filled_events:
        sample = samples.get(event.get("type"))
        if sample is None:
            cast_events.append(_cast_event(event, stream))
        else:
            cast_events.append(_build_like(sample, event))
    return cast_events


def _build_like(sample: Any, value: dict[str, Any]) -> Any:
    """A value as an object of the class that the sample has."""
    model = type(sample)
    try:
        return model.model_validate(value)
    except ValueError:  # a server that is only nearly compatible; the SDKs do not check answers either
        return model.model_construct(**value)


def _cast_event(event: dict[str, Any], stream: Any) -> Any:
    """An event as an object of the SDK whose stream this is; as it is, if the stream does not tell.

    The SDKs of Anthropic and OpenAI have a class for each type of event, and their streams have the union.
    """
    event_types = getattr(stream, "_cast_to", None)
    if event_types is None:
        return event
    from pydantic import TypeAdapter  # noqa: PLC0415 - such an SDK has it; lamina does not need it

    return TypeAdapter(event_types).validate_python(event)
