"""Renders an envelope as one flat prompt, for completion endpoints, logs and readers.

A prompt that was not split is given back as it is. Anything else is written turn by turn, in the layout that
`layout` draws. Results stand in the order of their calls if any other order would be misread.
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
from lamina.dialects.origins import group_entries, read_origin_in
from lamina.dialects.pairing import PairedResult, StepResults, find_result_name
from lamina.dialects.pieces import explain_refused_part
from lamina.dialects.render_memo import RenderMemo
from lamina.dialects.text.layout import TextTurn, Voice, join_turns, make_label_name
from lamina.dialects.text.parse import NAME
from lamina.dialects.words import write_as_text
from lamina.errors import BadInput

_VOICES: dict[Role, Voice] = {Role.SYSTEM: "system", Role.ASSISTANT: "assistant", Role.USER: "user"}


def render(envelope: Envelope, _memo: RenderMemo | None = None) -> dict[str, Any]:
    """The request: parameters as they came, and the prompt, which is one text and written anew each time."""
    if not envelope.sent:
        hint = "add a message that says something"
        raise BadInput("nothing is left to send", place="prompt", hint=hint)
    return {**envelope.head.parameters, "prompt": render_prompt(envelope)}


def render_prompt(envelope: Envelope) -> str:
    """The whole conversation as one text.

    A prompt that was not read as a conversation is one entry, and leaves as it came.
    """
    match envelope.sent:
        case (entry,) if read_origin_in(entry.segment, NAME).notes.get("whole") is True:
            return _write_text(entry)
    return join_turns(_write_turns(envelope))


def carries(segment: Segment) -> str:
    """Why a segment that another dialect parsed cannot stand in a flat prompt; "" if it can."""
    return explain_refused_part(segment, NAME, _refuse_part)


def _refuse_part(part: Part, segment: Segment) -> str:
    """Why a part cannot stand in a flat prompt; "" if it can.

    Another API's block of the assistant's is nothing that the model said in words.
    """
    match part:
        case Thinking():
            return "reasoning is no part of a flat prompt"
        case Raw(dialect=dialect) if dialect != NAME and segment.role is Role.ASSISTANT:
            if segment.kind == "thinking":
                return f"reasoning of {dialect} is no text"
            return f"a block of {dialect} is no text"
        case Image():
            return "a picture cannot stand in a flat prompt"
        case Document(text=""):
            return "a document without its text cannot stand in a flat prompt"
    return ""


def _write_turns(envelope: Envelope) -> list[TextTurn]:
    """The turns. What leaves with its turn, such as the time, is said with the question, not after it.

    Texts of one voice in a row, in one message, are one turn with a line for each.
    """
    temporary_entries = envelope.sent[len(envelope.lasting) :]
    writer = _TurnWriter()
    for group in group_entries(envelope.sent):
        belongs_to_question = group[0] in temporary_entries and writer.voice == "user"
        if not belongs_to_question:
            writer.end_turn()
        for entry in group:
            writer.add_entry(entry)
    writer.end_turn()
    writer.turns += writer.step.flush()
    return writer.turns


class _TurnWriter:
    """Collects turns.

    `texts` are the texts of the turn that is not ended yet. Results wait until the last result of their
    `step` is there.
    """

    def __init__(self) -> None:
        self.turns: list[TextTurn] = []
        self.texts: list[str] = []
        self.voice: Voice = "user"
        self.step: StepResults[TextTurn] = StepResults()

    def add_entry(self, entry: Entry) -> None:
        """Add a result, a call, or a text of the turn that is not ended yet.

        A picture is named by its address, since a prompt is text.
        """
        part = entry.parts[0]
        if isinstance(part, ToolResult):
            self._add_result(entry, part)
            return
        if self.step.has_results:
            self.turns += self.step.flush()
        if isinstance(part, ToolCall):
            self._add_call(part)
            return
        text = _write_text(entry)
        if text:
            self.voice = _VOICES.get(entry.role, "user")
            self.texts.append(text)

    def end_turn(self) -> None:
        """Make a turn of the texts so far."""
        if self.texts:
            self.turns.append(TextTurn(self.voice, "\n".join(self.texts)))
            self.texts = []

    def _add_call(self, call: ToolCall) -> None:
        """Add a call at once: its results follow it."""
        self.end_turn()
        name = make_label_name(call.name)
        self.step.add_call(call.id, name)
        self.turns.append(TextTurn("call", call.arguments, name))

    def _add_result(self, entry: Entry, result: ToolResult) -> None:
        """Keep a result until its step is complete, with its name as a reader sees it.

        A result that failed has the label "Tool read fails:".
        """
        self.end_turn()
        name = make_label_name(find_result_name(entry, result))
        voice: Voice = "answer"
        if result.error:
            voice = "failure"
        turn = TextTurn(voice, write_as_text(result.content), name)
        self.step.add_result(turn, PairedResult(asked=result.id, asked_name=name, name=name))


def _write_text(entry: Entry) -> str:
    """What an entry says, one part on each line; reasoning says nothing here."""
    texts: list[str] = []
    for part in entry.parts:
        match part:
            case Thinking():
                continue
            case Raw(dialect=dialect, data=prompt) if dialect == NAME:
                texts.append(str(prompt))
            case _:
                texts.append(write_as_text((part,)))
    return "\n".join(texts)
