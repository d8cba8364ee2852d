"""A log as turns: where each begins, what user and model said, which calls wait for a result.

A turn begins where the user's side speaks after the model, or after a prompt that was never answered. The
functions here only read the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.context.relevance import PROMPT_KEY, TYPED_KEY
from lamina.core.kinds import Kinds, is_section
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.text.characters import is_blank
from lamina.core.values import Role, Segment, ToolCall, ToolResult
from lamina.core.wording import visible_text
from lamina.errors import BadInput, NotFound

METADATA_KEY = "metadata"
"""Where the `meta` of a segment has what the application keeps with a message."""


class Utterance(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said, without context and tags. `sent` is what the model saw, if not the same.

    `metadata` is what the application gave with it.
    """

    role: Role
    text: str
    at: str = ""
    sent: str = ""
    metadata: dict[str, Any] = {}


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The metadata of a message as a dict. What no record can hold raises BadInput."""
    if metadata is None:
        return {}
    try:
        plain = msgspec.json.decode(msgspec.json.encode(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        hint = 'give JSON values under names: {"source": "voice"}'
        raise BadInput(f"it cannot be written: {error}", place="metadata", hint=hint) from None
    if not isinstance(plain, dict):
        hint = 'give JSON values under names: {"source": "voice"}'
        raise BadInput(f"{metadata!r:.80} is no mapping", place="metadata", hint=hint)
    return plain


def add_metadata(segments: Iterable[Segment], metadata: Mapping[str, Any]) -> list[Segment]:
    """The segments with this metadata; unchanged if there is none."""
    if not metadata:
        return list(segments)
    return [
        msgspec.structs.replace(segment, meta=segment.meta | {METADATA_KEY: dict(metadata)})
        for segment in segments
    ]


def list_dialogue(log: Sequence[Segment]) -> tuple[Utterance, ...]:
    """What user and model said to each other. The segments of one message are one utterance."""
    utterances: list[Utterance] = []
    message_has_text = False
    for segment in log:
        if not segment.joins:
            message_has_text = False
        if segment.kind not in ("user", "assistant"):
            continue
        if segment.covers:  # a summary, which nobody said
            continue
        text = visible_text(segment.parts)
        if is_blank(text):
            continue
        if message_has_text:
            last = utterances[-1]
            utterances[-1] = msgspec.structs.replace(last, text=f"{last.text}\n{text}")
        else:
            utterances.append(_make_utterance(segment, text))
        message_has_text = True
    return tuple(utterances)


def _make_utterance(segment: Segment, text: str) -> Utterance:
    """What was typed, and what was sent if that is not the same."""
    metadata = segment.meta.get(METADATA_KEY)
    if not isinstance(metadata, dict):
        metadata = {}
    typed = segment.meta.get(TYPED_KEY)
    if isinstance(typed, str):
        return Utterance(role=segment.role, text=typed, at=segment.at, sent=text, metadata=metadata)
    return Utterance(role=segment.role, text=text, at=segment.at, metadata=metadata)


def write_page(log: Sequence[Segment]) -> str:
    """What user and model said, as a page of Markdown for people to read."""
    return "\n\n".join(f"**{one.role}**: {one.text}" for one in list_dialogue(log)) + "\n"


def list_turn_starts(log: Sequence[Segment], kinds: Kinds) -> list[int]:
    """The index at which each turn begins. Changed sections before a turn's words belong to it."""
    turn_starts: list[int] = []
    users_side_speaks = False
    turn_has_prompt = False
    for start, segment in _list_spoken(log, kinds):
        if segment.role is not Role.USER:
            users_side_speaks = False
            continue
        # Somebody asks twice, and nobody answered the first time: these are two turns.
        is_next_prompt = turn_has_prompt and not segment.joins
        if not users_side_speaks or is_next_prompt:
            turn_starts.append(start)
            turn_has_prompt = False
        users_side_speaks = True
        if segment.meta.get(PROMPT_KEY):
            turn_has_prompt = True
    return turn_starts


def _list_spoken(log: Sequence[Segment], kinds: Kinds) -> Iterator[tuple[int, Segment]]:
    """Each segment that somebody speaks, with the index at which it begins.

    Sections right before it that changed during the conversation belong to it. Those at the very beginning
    of a log belong to no turn.
    """
    first_section: int | None = None
    was_begun = False
    for index, segment in enumerate(log):
        if segment.covers:
            continue
        if segment.kind in kinds and is_section(kinds, segment):
            if was_begun and first_section is None:
                first_section = index
            continue
        if first_section is None:
            yield index, segment
        else:
            yield first_section, segment
        first_section = None
        if segment.role is not Role.SYSTEM:
            was_begun = True


def locate_turn(log: Sequence[Segment], at: int | str, kinds: Kinds) -> int:
    """The index of the segment that `at` names: a turn by its number, or a segment by its key."""
    if isinstance(at, str):
        return _index_of_key(log, at)
    turn_starts = list_turn_starts(log, kinds)
    if not -len(turn_starts) <= at < len(turn_starts):
        raise BadInput(f"no turn {at!r}", place="at", hint=f"there are {len(turn_starts)} turns, from 0")
    return turn_starts[at]


def _index_of_key(log: Sequence[Segment], key: str) -> int:
    target = index_by_name(identify_segments(log)).get(key)
    for index in reversed(range(len(log))):
        if log[index] is target:
            return index
    raise NotFound(key)


def index_after_prompt(log: Sequence[Segment]) -> int:
    """The index after the last prompt and what continues its message."""
    for index in reversed(range(len(log))):
        if log[index].kind == "user" and log[index].role is Role.USER:
            return index + 1
    raise BadInput("nothing was asked yet", place="regenerate", hint="ask first")


def list_open_calls(log: Sequence[Segment]) -> tuple[ToolCall, ...]:
    """The calls since the user last spoke that have no result yet, in order."""
    calls: list[ToolCall] = []
    for segment in log[_index_after_last(log, Role.USER) :]:
        for part in segment.parts:
            if isinstance(part, ToolCall):
                calls.append(part)
            elif isinstance(part, ToolResult):
                take_call(calls, part)
    return tuple(calls)


def index_before_open_calls(log: Sequence[Segment]) -> int:
    """The index at which the last answer begins if its calls wait for a result, else the log's end.

    Before it stands what the last request has sent: that is what a cache has.
    """
    if not list_open_calls(log):
        return len(log)
    return _index_after_last(log, Role.USER, Role.TOOL)


def _index_after_last(log: Sequence[Segment], *roles: Role) -> int:
    """The index after the last segment of these roles. A summary is nobody's words, whatever its role."""
    for index in reversed(range(len(log))):
        if log[index].role in roles and not log[index].covers:
            return index + 1
    return 0


def take_call(calls: list[ToolCall], result: ToolResult) -> ToolCall | None:
    """Take the call that a result answers out of these; None if it answers none of them.

    Some servers give every call the same id. Of several with one id it is that of the result's tool, or else
    the first.
    """
    of_id = [index for index, call in enumerate(calls) if call.id == result.id]
    if not of_id:
        return None
    of_tool = [index for index in of_id if calls[index].name == result.name]
    return calls.pop((of_tool or of_id)[0])


def is_models_turn(log: Sequence[Segment]) -> bool:
    """Whether it is the model's turn to speak: after the user or a tool did, whichever was last."""
    return _index_after_last(log, Role.USER, Role.TOOL) > _index_after_last(log, Role.ASSISTANT)
