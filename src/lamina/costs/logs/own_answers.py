"""Decides which answers of a trace count: no copies from other traces, and none from before a moment.

A resumed session begins with a copy of the one before it, and its copied answers were paid for once. Answers
are told by the ids that their provider gave them. `SeenAnswers` remembers a digest of each, so that several
processes can read files at once and one place decides which answer came first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from lamina.costs.logs.growing_requests import find_answer_starts
from lamina.costs.logs.json_fields import text_field
from lamina.costs.logs.values import Trace, UnreadableLine
from lamina.dialects.json_values import list_or_empty

DIGEST_SIZE = 16
"""Bytes of the digest of an answer."""

LONGEST_TITLE = 120
"""Characters of the first words of a session."""

WITHOUT_TIMES = "it has no times, so nobody can tell when it was"

_BY_CLIENTS = ("<", "Caveat:", "# AGENTS.md")

_TAG = re.compile(r"<(/?)([a-z_-]{1,40})>")
"""The beginning or the end of what clients put before the first question, as `<system-reminder>`."""


class SeenAnswers:
    """State: the digests of all answers that were counted so far."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def add(self, answers: Mapping[int, bytes]) -> frozenset[int]:
        """Remember the answers of the next trace, and return the places of those that were there before."""
        copied = frozenset(place for place, digest in answers.items() if digest in self._digests)
        self._digests.update(answers.values())
        return copied


def is_own_answer(trace: Trace, place: int) -> bool:
    """Whether the answer that begins with this item is a call of this trace."""
    return place >= trace.recorded_from and place not in trace.copied


def digest_answers(trace: Trace) -> dict[int, bytes]:
    """The digest of each answer that has an id, by its place."""
    digests: dict[int, bytes] = {}
    for place, call_id in trace.call_ids.items():
        name = call_id
        # some servers give every answer the same id, so the usage is part of it
        usage = trace.used.get(place)
        if usage is not None:
            name += f" {usage.uncached} {usage.read} {usage.written} {usage.written_long} {usage.output}"
        digests[place] = blake2b(name.encode("utf-8", "replace"), digest_size=DIGEST_SIZE).digest()
    return digests


def select_own(
    trace: Trace, copied: frozenset[int], since: float | None = None
) -> Trace | UnreadableLine | None:
    """The trace with its own answers since a moment; None if it has none.

    The history stays whole, since later requests sent it. A trace without times is left out, and says so.
    """
    if copied and copied.issuperset([*trace.call_ids, *trace.used]):
        return None
    if since is not None:
        moments = _moments_of_answers(trace)
        if not moments:
            return UnreadableLine(place=trace.place, reason=WITHOUT_TIMES, foreign=True)
        inside = {place for place, at in moments.items() if at >= since}
        if inside <= copied:
            return None
        trace = _leave_out_earlier(trace, min(inside), since)
        copied |= moments.keys() - inside
    return _describe(trace, copied)


def _moments_of_answers(trace: Trace) -> dict[int, float]:
    """When each answer came. One without a time came with the one before it, or when the session began."""
    moments: dict[int, float] = {}
    latest = trace.began
    for place in sorted({*find_answer_starts(trace.items), *trace.used}):
        usage = trace.used.get(place)
        if usage is not None and usage.at is not None:
            latest = usage.at
        if latest is not None:
            moments[place] = latest
    return moments


def _leave_out_earlier(trace: Trace, first: int, since: float) -> Trace:
    """The trace without compactions before its first answer that counts, and without earlier repetitions."""
    repeated = []
    for place, usage in trace.repeated:
        if usage.at is not None and usage.at >= since:
            repeated.append((place, usage))
    return msgspec.structs.replace(
        trace,
        repeated=tuple(repeated),
        compacted=tuple(place for place in trace.compacted if first <= place),
    )


def _describe(trace: Trace, left_out: frozenset[int]) -> Trace:
    """The trace with what a reader tells it by, and with the usage of its own answers only."""
    used = {place: usage for place, usage in trace.used.items() if place not in left_out}
    began = trace.began
    # a session whose first answers do not count began when its first own answer came
    if began is None or left_out:
        moments = [usage.at for usage in used.values() if usage.at is not None]
        began = min(moments, default=began)
    return msgspec.structs.replace(
        trace, used=used, copied=left_out, began=began, title=trace.title or find_first_words(trace.items)
    )


def find_first_words(items: Iterable[Mapping[str, Any]]) -> str:
    """The beginning of what the user wrote first, without the reminders and files that clients put before it.

    `<environment_context>…` is passed over, and `Fix the tests` is a title.
    """
    for item in items:
        if item.get("role") != "user":
            continue
        for text in reversed(list(_list_texts(item.get("content")))):  # attachments stand before the words
            words = " ".join(_remove_tagged(text).split())
            if words and not words.startswith(_BY_CLIENTS):
                return words[:LONGEST_TITLE]
    return ""


def _list_texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for block in list_or_empty(content):
        yield text_field(block, "text")


def _remove_tagged(text: str) -> str:
    """A text without `<name>…</name>`, whatever the name is. A tag that is never closed stays in the text."""
    # A pattern that refers to the name, `<(name)>.*?</\1>`, takes the square of the length: it reads the
    # rest of the text for each tag that has no end.
    tags = list(_TAG.finditer(text))
    last_ends = {tag[2]: tag.start() for tag in tags if tag[1]}
    outside: list[str] = []
    position = 0
    open_name = ""
    for tag in tags:
        is_end, name = tag.groups()
        if open_name:
            if is_end and name == open_name:
                open_name = ""
                position = tag.end()
        elif not is_end and last_ends.get(name, -1) > tag.start():
            outside.append(text[position : tag.start()])
            open_name = name
    outside.append(text[position:])
    return " ".join(outside)
