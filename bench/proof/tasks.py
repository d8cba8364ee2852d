"""A task: a conversation, the calls in it, and what each call needs to have in sight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from bench.talks import Sought, is_in_sight, plain_words
from lamina.core.text.characters import fold_case
from lamina.costs.logs.model_calls import message_text

Message = dict[str, Any]

READ = "read"
SAID = "said"
"""Whether what is needed was read in a result, or said by somebody."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one call has to see. `end` is how many messages of the conversation stand before that call.

    `question` is what a reader would search for with; without one it is the last thing that the user said.
    `voice` tells what was said from what was read. `answer` has the spellings of a right answer, if that is
    not what is sought.
    """

    end: int
    sought: Sought
    question: str = ""
    answer: tuple[str, ...] = ()
    voice: str = SAID


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation in OpenAI chat. It succeeds if every call had in sight what it needed."""

    name: str
    messages: list[Message]
    needs: list[Need]
    tools: list[dict[str, Any]] = []


def request_text(messages: Sequence[Message]) -> str:
    """All that a model reads of these messages, as plain words: texts, and the calls with their arguments."""
    return plain_words("\n".join(message_words(message) for message in messages))


def message_words(message: Message) -> str:
    """The text of a message, with the names and arguments of its calls."""
    texts = [message_text(message)]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        texts.append(f"{function['name']} {function['arguments']}")
    return "\n".join(texts)


def need_values(
    values: Iterable[str], before: Sequence[Message], texts: Sequence[str], *, sort: str, shortest: int = 2
) -> Iterator[Need]:
    """A need for each value that stood in an earlier message, so that a call can only have it from there.

    `texts` has the plain words of each message before the call. A value that never stood anywhere comes from
    the model's own knowledge, and is no need.
    """
    for value in dict.fromkeys(values):
        if len(fold_case(value)) < shortest or not plain_words(value):
            continue
        sought = Sought(sort=sort, spellings=(value,))
        sources = [message for message, text in zip(before, texts, strict=True) if is_in_sight(sought, text)]
        if not sources:
            continue
        was_read = all(message.get("role") in ("tool", "assistant") for message in sources)
        voice = READ if was_read else SAID
        sought = Sought(sort=f"{sort}, {voice}", spellings=(value,))
        yield Need(end=len(before), sought=sought, voice=voice)


def make_call(number: int, name: str, arguments: str) -> Message:
    """An assistant's message with one call."""
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


def make_result(number: int, text: str) -> Message:
    """The result of that call."""
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}
