"""The layout of one flat prompt: turns under labels, and the way back from a prompt to its turns.

    System: Be brief.

    Previous context:
    User: What is in a.py?
    Assistant calls read_file: {"path": "a.py"}
    Tool read_file answers: x = 1
    Assistant: One assignment.

    User: And in b.py?
    Assistant:

What stands before the last question is previous context. A line of a turn's own text that looks like a label
gets a backslash before it, one more than it has, so no text can speak in another's voice and every text comes
back exactly. This file knows strings only: no segments, no requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from lamina.core.text.characters import ALPHANUMERIC, LINE_ENDS, SPACES, WHITE_SPACE, in_any_case

Voice = Literal["system", "user", "assistant", "call", "answer", "failure"]

CUE = "\nAssistant:"
"""What a prompt ends with, for the model to go on."""

CONTEXT = "Previous context:"

_LABELS: dict[Voice, str] = {
    "system": "System: ",
    "user": "User: ",
    "assistant": "Assistant: ",
    "call": "Assistant calls {}: ",
    "answer": "Tool {} answers: ",
    "failure": "Tool {} fails: ",
}
_SPEAKERS: dict[str, Voice] = {"System": "system", "User": "user", "Assistant": "assistant"}

_NAME = rf"[{ALPHANUMERIC}_.-]{{1,128}}"
_LABEL = re.compile(
    rf"\n(?:(System|User|Assistant): |Assistant calls ({_NAME}): |Tool ({_NAME}) (answers|fails): "
    rf"|{CONTEXT}(?=\n))"
)
_RARE = LINE_ENDS.replace("\n", "")


def _forged_labels() -> str:
    """What a reader may take for a label after the end of a line: whatever the case and the spaces.

    Each repetition is followed by something that it cannot hold, so no text is read again and again.
    """
    gap, gaps, name = f"[{SPACES}]*", f"[{SPACES}]+", f"[^{WHITE_SPACE}:]+"
    speaker = "|".join(map(in_any_case, ("system", "user", "assistant")))
    context = f"{in_any_case('previous')}{gaps}{in_any_case('context')}"
    calls = f"{in_any_case('assistant')}{gaps}{in_any_case('calls')}{gaps}{name}"
    outcome = "|".join(map(in_any_case, ("answers", "fails")))
    answer = f"{in_any_case('tool')}{gaps}{name}{gaps}(?:{outcome})"
    begins = f"(?=[{SPACES}SUAPTsuapt\u017f\\\\])"  # one look at the first character passes most lines over
    return rf"{begins}{gap})(\\*)(?=(?:{speaker}|{context}|{calls}|{answer}){gap}:)"


_AFTER_NEWLINE = re.compile(rf"(\n{_forged_labels()}")
_AFTER_ANY_END = re.compile(rf"([{LINE_ENDS}]{_forged_labels()}")
_UNNAMEABLE = re.compile(rf"[^{ALPHANUMERIC}_.-]")


class TextTurn(msgspec.Struct, frozen=True, gc=False):
    """What one voice says; `name` is the tool of a call or of a result."""

    voice: Voice
    text: str
    name: str = ""


def written(turns: Sequence[TextTurn], *, cue: bool = True) -> str:
    """The prompt. With `cue` the model is asked to go on, unless an assistant's words already stand last."""
    return _joined(turns, lines(turns), cue=cue)


def lines(turns: Sequence[TextTurn]) -> Iterator[str]:
    """Each turn as it stands in a prompt, with what parts it from the one before; the first begins a line."""
    first, question = _places(turns)
    for at, turn in enumerate(turns):
        seam = "\n" if at in (first, question) and at else ""
        header = f"\n{CONTEXT}" if at == first < question else ""
        yield f"{seam}{header}\n{_LABELS[turn.voice].format(turn.name)}{_escaped(turn.text)}"


def split(prompt: str) -> list[tuple[TextTurn, str]] | None:
    """The turns of a prompt of exactly this layout, each as `lines` has it; None for any other prompt."""
    body = "\n" + prompt.removesuffix(CUE)
    labels = list(_LABEL.finditer(body))
    if not labels or labels[0].start():
        return None
    ends = [*(label.start() for label in labels[1:]), len(body)]
    found = zip(labels, ends, strict=True)
    turns = _without_seams([_turn(at, body[at.end() : end]) for at, end in found if at.lastindex])
    texts = list(lines(turns))
    same = bool(turns) and _joined(turns, texts) == prompt
    return list(zip(turns, texts, strict=True)) if same else None


def nameable(name: str) -> str:
    """A tool's name that fits a label."""
    return _UNNAMEABLE.sub("_", name)[:128] or "unnamed"


def _joined(turns: Sequence[TextTurn], texts: Iterable[str], *, cue: bool = True) -> str:
    asks = cue and not (turns and turns[-1].voice == "assistant")
    return ("".join(texts) + (CUE if asks else "")).removeprefix("\n")


def _places(turns: Sequence[TextTurn]) -> tuple[int, int]:
    """Where the turns after the system text begin, and where the last question stands."""
    first = next((i for i, turn in enumerate(turns) if turn.voice != "system"), len(turns))
    asked = (i for i in range(len(turns) - 1, first - 1, -1) if turns[i].voice == "user")
    return first, next(asked, first)


def _turn(label: re.Match[str], text: str) -> TextTurn:
    speaker, called, answers, how = label.groups()
    if speaker:
        return TextTurn(_SPEAKERS[speaker], _unescaped(text))
    if called:
        return TextTurn("call", _unescaped(text), called)
    return TextTurn("answer" if how == "answers" else "failure", _unescaped(text), answers)


def _without_seams(turns: list[TextTurn]) -> list[TextTurn]:
    """The turns without the empty lines that part system text, context and question."""
    for at in set(_places(turns)):
        if 0 < at < len(turns):
            before = turns[at - 1]
            turns[at - 1] = TextTurn(before.voice, before.text.removesuffix("\n"), before.name)
    return turns


def _escaped(text: str) -> str:
    return _forged(text).sub(r"\1\2\\", text)


def _unescaped(text: str) -> str:
    return _forged(text).sub(lambda at: at[1] + at[2][1:], text) if "\\" in text else text


def _forged(text: str) -> re.Pattern[str]:
    """Two patterns, since one literal newline is looked for several times faster than a class."""
    return _AFTER_ANY_END if any(end in text for end in _RARE) else _AFTER_NEWLINE
