"""An envelope as one flat prompt, for completion endpoints, logs and whoever reads a conversation.

A prompt that was not split is given back as it is; anything else is written turn by turn, in the layout that
`layout` draws. Results stand in the order of their calls wherever another order would be read wrongly.
"""

from __future__ import annotations

from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.values import (
    Document,
    Entry,
    Image,
    Part,
    Raw,
    Role,
    Segment,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.dialects.pairing import Result, reading_order
from lamina.dialects.port import groups
from lamina.dialects.text.layout import TextTurn, Voice, nameable, written
from lamina.dialects.text.parse import NAME
from lamina.dialects.words import said
from lamina.errors import BadInput


def render(envelope: Envelope) -> dict[str, Any]:
    """The request: parameters as they came, and the prompt."""
    prompt = prompt_of(envelope)
    if not envelope.sent:
        raise BadInput("nothing is left to send", place="prompt", hint="add a message that says something")
    return {**envelope.head.parameters, "prompt": prompt}


def prompt_of(envelope: Envelope, *, cue: bool = True) -> str:
    """The whole conversation as one text. Without `cue` it does not ask for a reply: a transcript."""
    sent = envelope.sent
    if len(sent) == 1 and sent[0].segment.meta.get("wire", {}).get("whole") is True:
        return _text(sent[0])
    return written(_turns(envelope), cue=cue)


def carries(segment: Segment) -> str:
    """Why a segment that another dialect parsed cannot be said in a flat prompt; nothing if it can."""
    if segment.origin == NAME:
        return ""
    return next((why for part in segment.parts if (why := _unsaid(part, segment))), "")


def _unsaid(part: Part, segment: Segment) -> str:
    match part:
        case Thinking():
            return "reasoning is no part of a flat prompt"
        case Raw(dialect=dialect) if dialect != NAME and segment.role is Role.ASSISTANT:
            return f"{'reasoning' if segment.kind == 'thinking' else 'a block'} of {dialect} is no text"
        case Image():
            return "a picture cannot stand in a flat prompt"
        case Document(text=text) if not text:
            return "a document without its text cannot stand in a flat prompt"
        case ToolResult(content=content):  # an address is said in full by its words, content is not
            media = (inner for inner in content if isinstance(inner, Image | Document) and inner.data)
            return next((why for inner in media if (why := _unsaid(inner, segment))), "")
    return ""


def _turns(envelope: Envelope) -> list[TextTurn]:
    """The turns. What leaves with its turn, such as the time, is said with the question, not after it."""
    tail = envelope.sent[len(envelope.lasting) :]
    writer = _Writer()
    for group in groups(envelope):
        ends_the_question = group[0] in tail and writer.voice == "user"
        if not ends_the_question:
            writer.pause()
        for entry in group:
            writer.take(entry)
    writer.pause()
    writer.answer()
    return writer.turns


class _Writer:
    """Turns so far. `said` are the texts of the turn in the making; `results` wait for the last of a step."""

    def __init__(self) -> None:
        self.turns: list[TextTurn] = []
        self.said: list[str] = []
        self.voice: Voice = "user"
        self.calls: list[ToolCall] = []
        self.results: list[tuple[TextTurn, Result]] = []

    def take(self, entry: Entry) -> None:
        part = entry.parts[0]
        if isinstance(part, ToolResult):
            self._result(entry, part)
            return
        if self.results:
            self.answer()
        if isinstance(part, ToolCall):
            self._call(part)
        elif text := _text(entry):
            self.voice = _VOICES.get(entry.role, "user")
            self.said.append(text)

    def pause(self) -> None:
        """What was said so far is a turn."""
        if self.said:
            self.turns.append(TextTurn(self.voice, "\n".join(self.said)))
            self.said = []

    def answer(self) -> None:
        """The results of a step are complete."""
        order = reading_order(self.calls, [result for _, result in self.results])
        self.turns += [self.results[at][0] for at in order]
        self.calls, self.results = [], []

    def _call(self, call: ToolCall) -> None:
        self.pause()
        name = nameable(call.name)
        self.calls.append(ToolCall(id=call.id, name=name, arguments=""))
        self.turns.append(TextTurn("call", call.arguments, name))

    def _result(self, entry: Entry, result: ToolResult) -> None:
        self.pause()
        name = nameable(entry.asked.name if entry.asked else result.name)
        turn = TextTurn("failure" if result.error else "answer", said(result.content), name)
        self.results.append((turn, Result(asked=result.id, name=name)))


_VOICES: dict[Role, Voice] = {Role.SYSTEM: "system", Role.ASSISTANT: "assistant", Role.USER: "user"}


def _text(entry: Entry) -> str:
    """What an entry says; reasoning says nothing here."""
    texts = [_own(part) for part in entry.parts if not isinstance(part, Thinking)]
    return "\n".join(texts)


def _own(part: Part) -> str:
    return str(part.data) if isinstance(part, Raw) and part.dialect == NAME else said((part,))
