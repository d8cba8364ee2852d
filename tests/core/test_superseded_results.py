"""A result is superseded where the same call returned the same text again, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lamina import Form, Segment, build
from lamina.core import ToolCall, ToolResult
from lamina.core.ladder import find_superseded
from lamina.core.values import Entry
from lamina.segments import call, result, user

Exchanged = tuple[str, str, str]
"""The name of a tool, its arguments and what it returned."""

EXCHANGES = st.tuples(
    st.sampled_from(["read", "ls"]), st.sampled_from(["{}", '{"path":"a"}']), st.sampled_from(["x", "y"])
)


def place(exchanges: Sequence[Exchanged]) -> tuple[Entry, ...]:
    """A conversation of these calls and results: `exchanges[n]` has its result at position 2 + 2n."""
    log: list[Segment] = [user("Go.")]
    for number, (name, arguments, text) in enumerate(exchanges):
        log += [call(name, arguments, id=f"c{number}", joins=False), result(text, id=f"c{number}", name=name)]
    return build(log).entries


@given(st.lists(EXCHANGES, max_size=7))
def test_each_result_that_came_again_is_superseded_by_its_latest_equal(exchanges: list[Exchanged]) -> None:
    expected: dict[int, int] = {}
    for number, exchanged in enumerate(exchanges):
        latest = max(later for later, other in enumerate(exchanges) if other == exchanged)
        if latest != number:
            expected[2 + 2 * number] = 2 + 2 * latest
    assert find_superseded(place(exchanges)) == expected


@given(st.lists(EXCHANGES, max_size=7), st.sets(st.integers(0, 6)))
def test_a_result_that_is_shortened_supersedes_nothing_and_is_not_superseded(
    exchanges: list[Exchanged], shortened: set[int]
) -> None:
    entries = list(place(exchanges))
    lowered = {2 + 2 * number for number in shortened if number < len(exchanges)}
    for position in lowered:
        entries[position] = msgspec.structs.replace(entries[position], form=Form.COMPACT)
    found = find_superseded(entries)
    assert not lowered & {*found, *found.values()}
    for older, later in found.items():
        assert older < later
        assert _text_at(entries, older) == _text_at(entries, later)
        assert _call_at(entries, older) == _call_at(entries, later)


def _text_at(entries: Sequence[Entry], position: int) -> object:
    part = entries[position].parts[0]
    assert isinstance(part, ToolResult)
    return part.content


def _call_at(entries: Sequence[Entry], position: int) -> tuple[str, str]:
    part = entries[position - 1].parts[0]
    assert isinstance(part, ToolCall)
    return part.name, part.arguments
