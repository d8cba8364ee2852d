"""Simulates a cache with entries where a turn ends and where markers stand: OpenAI's since GPT-5.6.

A request may read any boundary that it has in common with an earlier one, among its latest boundaries. There
is no longest common prefix between boundaries. Nothing here reads a clock: the caller passes the time.
"""

from __future__ import annotations

from lamina.caches.breakpoints import CacheEntries, tally_entries
from lamina.caches.prefix import requested_lifetime
from lamina.caches.prefix_path import PrefixPath, build_path
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally

EXPLICIT = "explicit"
"""The mode in which only markers are boundaries."""

INPUT_ROLES = ("user", "tool")
"""The roles whose messages end a turn of input."""


class TurnEndCache:
    """State: the entries of all requests so far. The hash of a prefix begins with the key."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.entries = CacheEntries()

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """Send one request at a time in seconds. What it writes can be read once its answer has `begun`."""
        del answer  # it is cached when it comes back before a boundary
        path = build_path(stream, self.rules)
        boundaries = find_boundaries(stream, path, self.rules)
        hit = self._find_entry(path, boundaries, at)
        writes = choose_writes(stream, path, self.rules, boundaries)
        used = dict(writes)
        if hit is not None:
            used[hit] = ""
        ready = at if begun is None else begun
        self.entries.write_marks(path, used, self.rules, at=at, ready=ready)
        why = self._explain(stream, path, boundaries, hit)
        return tally_entries(path, writes, hit, self.rules, why=why)

    def _find_entry(self, path: PrefixPath, boundaries: dict[int, str], at: float) -> int | None:
        """The last of the latest boundaries with an entry that can be read.

        With a look-back of 20, only the last 20 boundaries are tried.
        """
        for index in sorted(boundaries, reverse=True)[: self.rules.look_back]:
            if self.entries.can_read(path.links[index], at):
                return index
        return None

    def _explain(self, stream: Stream, path: PrefixPath, boundaries: dict[int, str], hit: int | None) -> str:
        """Why a request read what it read, or nothing."""
        if hit is not None:
            return f"read up to {path.blocks[hit].place}"
        if boundaries:
            return "no live entry at a boundary of this request, under its key"
        return f"no boundary of at least {self.rules.least(stream.model)} tokens"


def find_boundaries(stream: Stream, path: PrefixPath, rules: CacheRules) -> dict[int, str]:
    """The blocks that are boundaries, with the lifetime of a marker, or "" for the end of a turn.

    A turn of input ends with the last block of a message of the user or of a tool. What is shorter than the
    minimum is no boundary.
    """
    least = rules.least(stream.model)
    writes_turns = EXPLICIT not in stream.automatic
    last = len(path.blocks) - 1
    boundaries = {}
    for index, block in enumerate(path.blocks):
        if path.sums[index] < least:
            continue
        ends_message = index == last or path.blocks[index + 1].opens
        ends_turn = ends_message and block.role in INPUT_ROLES
        if block.marker or (ends_turn and writes_turns):
            boundaries[index] = block.marker
    return boundaries


def choose_writes(
    stream: Stream, path: PrefixPath, rules: CacheRules, boundaries: dict[int, str]
) -> dict[int, str]:
    """The boundaries where a request leaves an entry: the end of the last turn, and the latest markers."""
    marked = [index for index, marker in boundaries.items() if marker]
    turn_ends = [index for index in boundaries if _may_end_turn(path.blocks[index])]
    if not turn_ends or EXPLICIT in stream.automatic:
        chosen = marked[-rules.markers :]
    else:
        last_turn_end = turn_ends[-1]
        other_marks = [index for index in marked if index != last_turn_end]
        # the end of the last turn takes one of the places that the cache has for markers
        too_many = max(len(other_marks) - rules.markers + 1, 0)
        chosen = [*other_marks[too_many:], last_turn_end]
    default_lifetime = requested_lifetime(stream, rules)
    return {index: boundaries[index] or default_lifetime for index in chosen}


def _may_end_turn(boundary: StreamBlock) -> bool:
    """Whether a boundary is the end of a turn, or a marker inside of one."""
    return not boundary.marker or boundary.role in INPUT_ROLES
