"""Lays out one flat prompt as turns under labels, and reads the turns back from a prompt.

    System: Be brief.

    Previous context:
    User: What is in a.py?
    Assistant calls read_file: {"path": "a.py"}
    Tool read_file answers: x = 1
    Assistant: One assignment.

    User: And in b.py?
    Assistant:

What stands before the last question is previous context. A line of a turn's own text that looks like a label
gets a backslash before it, one more than it has. So no text can pass for another's turn, and every text
comes back exactly. This module knows strings only: no segments, no requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from lamina.core.text.characters import ALPHANUMERIC, LINE_ENDS, SPACES, WHITE_SPACE, any_case_pattern

Voice = Literal["system", "user", "assistant", "call", "answer", "failure"]

CUE = "\nAssistant:"
"""The end of a prompt, after which the model goes on."""

CONTEXT = "Previous context:"

_LABELS: dict[Voice, str] = {
    "system": "System: ",
    "user": "User: ",
    "assistant": "Assistant: ",
    "call": "Assistant calls {}: ",
    "answer": "Tool {} answers: ",
    "failure": "Tool {} fails: ",
}
_VOICES_BY_SPEAKER: dict[str, Voice] = {"System": "system", "User": "user", "Assistant": "assistant"}
_VOICES_BY_OUTCOME: dict[str, Voice] = {"answers": "answer", "fails": "failure"}

_NAME = rf"[{ALPHANUMERIC}_.-]{{1,128}}"
# A label at the beginning of a line: "\nUser: ", "\nAssistant calls read_file: ", "\nPrevious context:".
_LABEL = re.compile(
    rf"\n(?:(System|User|Assistant): |Assistant calls ({_NAME}): |Tool ({_NAME}) (answers|fails): "
    rf"|{CONTEXT}(?=\n))"
)
_LINE_ENDS_BESIDES_NEWLINE = LINE_ENDS.replace("\n", "")


def _build_forged_label_pattern() -> str:
    r"""What a reader may take for a label after the end of a line, whatever its case and its spaces.

    Examples: "user:", "  ASSISTANT :", "\\tool x answers:". Group 2 is the backslashes before it. Each
    repetition is followed by something that it cannot hold, so no text is read again and again.
    """
    gap = f"[{SPACES}]*"
    wide_gap = f"[{SPACES}]+"
    name = f"[^{WHITE_SPACE}:]+"
    speaker = "|".join(map(any_case_pattern, ("system", "user", "assistant")))
    context = f"{any_case_pattern('previous')}{wide_gap}{any_case_pattern('context')}"
    calls = f"{any_case_pattern('assistant')}{wide_gap}{any_case_pattern('calls')}{wide_gap}{name}"
    outcome = "|".join(map(any_case_pattern, ("answers", "fails")))
    answer = f"{any_case_pattern('tool')}{wide_gap}{name}{wide_gap}(?:{outcome})"
    # A look at the first character is enough to skip most lines.
    first_character = f"(?=[{SPACES}SUAPTsuapt\u017f\\\\])"
    return rf"{first_character}{gap})(\\*)(?=(?:{speaker}|{context}|{calls}|{answer}){gap}:)"


_FORGED_AFTER_NEWLINE = re.compile(rf"(\n{_build_forged_label_pattern()}")
_FORGED_AFTER_ANY_END = re.compile(rf"([{LINE_ENDS}]{_build_forged_label_pattern()}")
_NOT_IN_NAMES = re.compile(rf"[^{ALPHANUMERIC}_.-]")


class TextTurn(msgspec.Struct, frozen=True, gc=False):
    """What one voice says; `name` is the tool of a call or of a result."""

    voice: Voice
    text: str
    name: str = ""


class PromptOpening(NamedTuple):
    """The turns of a prompt before its last question, `turn_count` of them, and their `text`.

    A prompt that goes on has the same text there, so they need not be read again. `first_turn` is the index
    of the first turn after the system text.
    """

    text: str = ""
    turn_count: int = 0
    first_turn: int = 0

    def extend(self, turns: Sequence[tuple[TextTurn, str]]) -> PromptOpening:
        """The opening with those of its next turns that stand before the last question.

        It stays as it is if nothing stands before that question but system text.
        """
        places = _find_places([turn for turn, _ in turns], self)
        added = turns[: places.question - self.turn_count]
        if places.question == places.first_turn or not added:
            return self
        lines = "".join(line for _, line in added)
        if not self.turn_count:
            lines = lines.removeprefix("\n")
        return PromptOpening(self.text + lines, places.question, places.first_turn)


BEGINNING = PromptOpening()


def join_turns(turns: Sequence[TextTurn]) -> str:
    """The prompt. It asks the model to go on, unless the last turn is an assistant's."""
    return _join_lines(turns, write_lines(turns)).removeprefix("\n")


def write_lines(turns: Sequence[TextTurn], opening: PromptOpening = BEGINNING) -> Iterator[str]:
    """Each turn after the opening as it stands in a prompt, with what separates it from the one before.

    The first turn begins with a newline too, which the prompt does not have.
    """
    places = _find_places(turns, opening)
    for index, turn in enumerate(turns, opening.turn_count):
        beginning = "\n"
        if index > 0 and index in places:
            beginning = "\n\n"
        if index == places.first_turn != places.question:
            beginning += f"{CONTEXT}\n"
        label = _LABELS[turn.voice].format(turn.name)
        yield f"{beginning}{label}{escape_labels(turn.text)}"


def split_turns(prompt: str, opening: PromptOpening = BEGINNING) -> list[tuple[TextTurn, str]]:
    """The turns of a prompt of exactly this layout, each with its text in it; none for any other prompt.

    The turns are written again and compared: only then it is certain that nothing is lost. Those of the
    `opening` are left out. There are none for a prompt that does not go on from it with a question.
    """
    if not prompt.startswith(opening.text):
        return []
    rest = prompt[len(opening.text) :]
    if not opening.turn_count:
        rest = "\n" + rest
    body = rest.removesuffix(CUE)
    labels = list(_LABEL.finditer(body))
    if not labels:
        return []
    turns = []
    ends = [*(label.start() for label in labels[1:]), len(body)]
    for label, end in zip(labels, ends, strict=True):
        is_turn = label.lastindex is not None  # "Previous context:" has no group
        if is_turn:
            turns.append(_read_turn(label, body[label.end() : end]))
    if opening.turn_count and (not turns or turns[0].voice != "user"):
        return []
    turns = _remove_empty_lines(turns, opening)
    lines = list(write_lines(turns, opening))
    if _join_lines(turns, lines) != rest:
        return []
    return list(zip(turns, lines, strict=True))


def make_label_name(name: str) -> str:
    """A tool's name that fits a label."""
    return _NOT_IN_NAMES.sub("_", name)[:128] or "unnamed"


def _join_lines(turns: Sequence[TextTurn], lines: Iterable[str]) -> str:
    """The end of a prompt, of lines that are written already.

    It ends with the label of the assistant, unless the assistant spoke last.
    """
    prompt = "".join(lines)
    last_voices = [turn.voice for turn in turns[-1:]]
    if last_voices != ["assistant"]:
        prompt += CUE
    return prompt


class _Places(NamedTuple):
    """The index of the first turn after the system text, and of the last question."""

    first_turn: int
    question: int


def _find_places(turns: Sequence[TextTurn], opening: PromptOpening) -> _Places:
    """Where the first turn after the system text stands, and where the last question does.

    Without a question, the first turn after the system text takes its place. These turns come after the
    opening, which has all of the system text if it has any turn.
    """
    first_turn = opening.first_turn
    if not opening.turn_count:
        while first_turn < len(turns) and turns[first_turn].voice == "system":
            first_turn += 1
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].voice == "user":
            return _Places(first_turn, opening.turn_count + index)
    return _Places(first_turn, first_turn)


def _read_turn(label: re.Match[str], text: str) -> TextTurn:
    """The turn under a label, with its own text as it was before it was escaped.

    A label names a speaker, a tool that was called, or a tool that answered and how that went.
    """
    speaker, called_tool, answering_tool, outcome = label.groups()
    if speaker:
        return TextTurn(_VOICES_BY_SPEAKER[speaker], _unescape(text))
    if called_tool:
        return TextTurn("call", _unescape(text), called_tool)
    return TextTurn(_VOICES_BY_OUTCOME[outcome], _unescape(text), answering_tool)


def _remove_empty_lines(turns: list[TextTurn], opening: PromptOpening) -> list[TextTurn]:
    """The turns without the empty lines that separate system text, context and question.

    A separator is the end of the turn before it, as far as the labels show.
    """
    for place in set(_find_places(turns, opening)):
        index = place - opening.turn_count
        if 0 < index < len(turns):
            turn = turns[index - 1]
            turns[index - 1] = TextTurn(turn.voice, turn.text.removesuffix("\n"), turn.name)
    return turns


def escape_labels(text: str) -> str:
    r"""The text with one more backslash before each line that looks like a label.

    A second line `User: hi` becomes `\User: hi`, and `\User: hi` becomes `\\User: hi`.
    """
    return _choose_forged_pattern(text).sub(r"\1\2\\", text)


def _unescape(text: str) -> str:
    """The text before `escape_labels`: one backslash less before each line that looks like a label."""
    if "\\" not in text:
        return text
    return _choose_forged_pattern(text).sub(lambda match: match[1] + match[2][1:], text)


def _choose_forged_pattern(text: str) -> re.Pattern[str]:
    """Two patterns, since one literal newline is found several times faster than a class of line ends."""
    if any(line_end in text for line_end in _LINE_ENDS_BESIDES_NEWLINE):
        return _FORGED_AFTER_ANY_END
    return _FORGED_AFTER_NEWLINE
