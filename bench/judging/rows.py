"""Writes one answer after one policy's request as text, and files of many of them.

A row has what a judge needs and nothing else: the messages as a chat model reads them, the answer that was
recorded, and which parts of the answer stood in the conversation before. Rows of one conversation share most
of their messages, so a file has each message once, and rows refer to them by number.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from lamina.errors import BadInput
from lamina.replay.model_calls import message_text, read_tool_calls

Span = tuple[int, int]
"""Where a part of a text begins and ends, in characters."""

ROLES = {"system": "system", "developer": "system", "assistant": "assistant"}
"""Roles as a chat model knows them. Everything else is the user's, results of tools too."""


class ChatText(msgspec.Struct, frozen=True, array_like=True):
    """A message as a chat model reads it."""

    role: str
    text: str


class LossRow(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded answer after what a policy would have sent.

    `call` is the number of the answer in its session. `window` is that of the policy, or 0 if the policy
    sends the same whatever the window is. `needed` are the parts of the answer that stood before it.
    """

    session: str
    call: int
    policy: str
    window: int
    messages: tuple[ChatText, ...]
    answer: str
    needed: tuple[Span, ...] = ()


class _NumberedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row in a file, whose messages are numbers of lines."""

    session: str
    call: int
    policy: str
    window: int
    numbers: tuple[int, ...]
    answer: str
    needed: tuple[Span, ...]


def to_chat_text(message: dict[str, Any]) -> ChatText:
    """A message in OpenAI chat as the model reads it, with its calls and results in Qwen's tags.

    A call of `read` becomes `<tool_call>` with its name and arguments as JSON, on lines of its own.
    """
    role = str(message.get("role"))
    text = message_text(message)
    if role in ("tool", "function"):
        text = f"<tool_response>\n{text}\n</tool_response>"
    lines = [text] if text else []
    for call in read_tool_calls(message):
        body = f'{{"name": "{call.name}", "arguments": {call.arguments or "{}"}}}'
        lines.append(f"<tool_call>\n{body}\n</tool_call>")
    return ChatText(ROLES.get(role, "user"), "\n".join(lines))


def find_spans(text: str, terms: Iterable[str]) -> tuple[Span, ...]:
    """Where any of the terms stands in a text. Spans that touch or overlap are one.

    Of `ab` and `bc` in `abc` it is one span, from 0 to 3.
    """
    spans: list[Span] = []
    for term in terms:
        at = text.find(term)
        while at >= 0:
            spans.append((at, at + len(term)))
            at = text.find(term, at + 1)
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def overlaps(start: int, end: int, spans: Iterable[Span]) -> bool:
    """Whether the part from `start` to `end` has a character of any span."""
    return any(start < span_end and span_start < end for span_start, span_end in spans)


def write_rows(path: Path, rows: Iterable[LossRow]) -> int:
    """Write rows as JSON lines, packed if the name ends in .gz; return how many there were.

    A message is written before the first row that has it, and has the number of its place among messages.
    """
    numbers: dict[ChatText, int] = {}
    count = 0
    encode = msgspec.json.encode
    with _open(path, "wb") as file:
        for row in rows:
            for message in row.messages:
                if message not in numbers:
                    numbers[message] = len(numbers)
                    file.write(encode(message) + b"\n")
            numbered = _NumberedRow(
                session=row.session,
                call=row.call,
                policy=row.policy,
                window=row.window,
                numbers=tuple(numbers[message] for message in row.messages),
                answer=row.answer,
                needed=row.needed,
            )
            file.write(encode(numbered) + b"\n")
            count += 1
    return count


def read_rows(path: Path) -> Iterator[LossRow]:
    """The rows of a file that `write_rows` wrote."""
    messages: list[ChatText] = []
    decode_message = msgspec.json.Decoder(ChatText).decode
    decode_row = msgspec.json.Decoder(_NumberedRow).decode
    with _open(path, "rb") as file:
        for at, line in enumerate(file, start=1):
            try:
                if line.startswith(b"["):
                    messages.append(decode_message(line))
                    continue
                row = _with_messages(decode_row(line), messages)
            except (msgspec.DecodeError, IndexError) as error:
                hint = "write the file again with write_rows"
                raise BadInput(f"line {at} is no row: {error}", place=str(path), hint=hint) from None
            yield row


def _with_messages(row: _NumberedRow, messages: list[ChatText]) -> LossRow:
    return LossRow(
        session=row.session,
        call=row.call,
        policy=row.policy,
        window=row.window,
        messages=tuple(messages[number] for number in row.numbers),
        answer=row.answer,
        needed=row.needed,
    )


def _open(path: Path, mode: str) -> IO[bytes]:
    if path.name.endswith(".gz"):
        return gzip.open(path, mode)  # type: ignore[return-value]
    return path.open(mode)
