"""A log as turns: where each begins, what user and model said, which calls wait for a result.

Structure only: a turn begins where the user's side speaks after the model, or after a prompt that never was
answered. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from lamina.core.kinds import Kinds, is_section
from lamina.core.recall import identified, names
from lamina.core.text.characters import is_blank
from lamina.core.values import Image, Role, Segment, Text, ToolCall, ToolResult
from lamina.errors import BadInput, NotFound

ASKED, TYPED = "asked", "typed"
"""Notes in a prompt's `meta`: that it is one, and what was typed where something else was sent."""


class Utterance(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said, without context and tags. `sent` is what the model saw, if not the same."""

    role: Role
    text: str
    at: str = ""
    sent: str = ""


def dialogue(log: Sequence[Segment]) -> tuple[Utterance, ...]:
    """What user and model said to each other."""
    said: list[Utterance] = []
    speaking = False  # the message has said something already
    for segment in log:
        speaking = speaking and segment.joins
        text = _plain(segment) if segment.kind in ("user", "assistant") and not segment.covers else ""
        if is_blank(text):
            continue
        if speaking:
            said[-1] = msgspec.structs.replace(said[-1], text=f"{said[-1].text}\n{text}")
        else:
            said.append(_said(segment, text))
        speaking = True
    return tuple(said)


def _said(segment: Segment, text: str) -> Utterance:
    typed = segment.meta.get(TYPED)
    if isinstance(typed, str):
        return Utterance(role=segment.role, text=typed, at=segment.at, sent=text)
    return Utterance(role=segment.role, text=text, at=segment.at)


def _plain(segment: Segment) -> str:
    shown = [
        p.text if isinstance(p, Text) else "[image]" for p in segment.parts if isinstance(p, Text | Image)
    ]
    return "\n".join(shown)


def starts(log: Sequence[Segment], kinds: Kinds) -> list[int]:
    """The index at which each turn begins: with the changed sections that came before its words."""
    found: list[int] = []
    sections: int | None = None
    opening = asked = begun = False
    for index, segment in enumerate(log):
        if segment.covers:
            continue
        if segment.kind in kinds and is_section(kinds, segment):
            sections = index if sections is None and begun else sections
            continue
        if segment.role is Role.USER:
            if not opening or (asked and not segment.joins):
                found.append(index if sections is None else sections)
                asked = False
            opening, asked = True, asked or bool(segment.meta.get(ASKED))
        else:
            opening = asked = False
        sections, begun = None, begun or segment.role is not Role.SYSTEM
    return found


def index_of(log: Sequence[Segment], at: int | str, kinds: Kinds) -> int:
    """The index of the first segment that `at` means: a turn by its number, or a segment by its key."""
    if isinstance(at, str):
        return _index_of_key(log, at)
    begins = starts(log, kinds)
    if not -len(begins) <= at < len(begins):
        raise BadInput(f"no turn {at!r}", place="at", hint=f"there are {len(begins)} turns, from 0")
    return begins[at]


def _index_of_key(log: Sequence[Segment], key: str) -> int:
    segment = names(identified(log)).get(key)
    if segment is None:
        raise NotFound(key)
    return max(index for index, one in enumerate(log) if one is segment)


def after_prompt(log: Sequence[Segment]) -> int:
    """The index after the last prompt and what continues it."""
    last = max((i for i, s in enumerate(log) if s.kind == "user" and s.role is Role.USER), default=-1)
    if last < 0:
        raise BadInput("nothing was asked yet", place="regenerate", hint="ask first")
    return last + 1


def waiting(log: Sequence[Segment]) -> tuple[ToolCall, ...]:
    """The calls of the model's last message that have no result yet, in order."""
    calls: list[ToolCall] = []
    for part in _since_the_user_spoke(log):
        if isinstance(part, ToolCall):
            calls.append(part)
        elif isinstance(part, ToolResult):
            answered = next((call for call in calls if call.id == part.id), None)
            calls = [call for call in calls if call is not answered]
    return tuple(calls)


def _since_the_user_spoke(log: Sequence[Segment]) -> Iterator[object]:
    last = max((i for i, s in enumerate(log) if s.role is Role.USER and not s.covers), default=-1)
    for segment in log[last + 1 :]:
        yield from segment.parts


def pending(log: Sequence[Segment]) -> bool:
    """Whether it is the model's turn to speak."""
    spoken = next((s.role for s in reversed(log) if s.role is not Role.SYSTEM and not s.covers), None)
    return spoken in (Role.USER, Role.TOOL)
