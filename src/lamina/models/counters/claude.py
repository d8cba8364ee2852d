"""Claude's tokens, offline, as `ctok` reconstructs them: measured by probing the API, not official.

Anthropic publishes no tokenizer since Claude 2. `ctok` is pure Python and reads about 0.2 MB a second, so
counts are cached by content, and of a text longer than `WHOLE` characters only samples are counted: they say
by how much the estimate is to be corrected. A request that is far from its
window is not counted here at all (`Counter.quick`). Nothing here claims to be exact.
Needs the extra `counting`.

A text is identified in the cache by its SHA-256, so the cache keeps no text alive. Two threads may count the
same text twice; they cannot damage the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from threading import Lock

from lamina.core.text.estimate import estimate_tokens
from lamina.core.tokens import Counter, divide_up, estimate_for
from lamina.errors import BadInput
from lamina.models.counters.count_guard import between_long_runs, guard_count

WHOLE = 65_536
"""Characters up to which a text is counted whole: a third of a second on the machine of the benchmarks."""

SAMPLES, SAMPLE = 8, 4_096
"""How many samples of a longer text are counted, and the characters of each."""

TokenCount = Callable[[str, str], int]

MOST = 65_536
"""Counts that are remembered; the least recently used one is forgotten first."""


@cache
def version(number: str) -> Counter:
    """The counter of a generation: "3.0" is Claude 3 to Opus 4.6, "4.8" is Opus 4.7 and later."""
    if number not in _FAMILIES:
        hint = f"use one of {list(_FAMILIES)}"
        raise BadInput(f"unknown generation {number!r}", place="version", hint=hint)
    return Counter(
        name=f"ctok-{number}",
        count=_count_of(number),
        measured=True,
        quick=estimate_for(f"{_FAMILIES[number]}_bound"),
    )


@cache
def _count_of(number: str) -> CachedCounter:
    """One memo for each generation, whatever is claimed for it."""
    token_count: TokenCount = import_module("ctok").token_count  # an extra, and without types
    family = _FAMILIES[number]
    frame = _proven_frame(token_count, number)
    count = guard_count(partial(_text_tokens, token_count, number, frame), family)
    return CachedCounter(partial(_count_samples, count, family))


def _proven_frame(token_count: TokenCount, number: str) -> int:
    """What `ctok` adds for the message. Raises `BadInput` if it does not count as the measured one did."""
    if token_count(_PROBE, number) != _PROOFS[number]:
        raise BadInput(
            "ctok does not count a known text as it should",
            place="claude",
            hint="install ctok 1.3, or count with estimate_for('claude')",
        )
    return token_count("a", number) - 1


def _text_tokens(token_count: TokenCount, number: str, frame: int, text: str) -> int:
    """The tokens of a text without the frame that the tokenizer puts around each piece."""
    total = 0
    for piece in between_long_runs(text):
        total += max(0, token_count(piece, number) - frame)
    return total


def _count_samples(count: Callable[[str], int], family: str, text: str) -> int:
    """The count of a text. A long one is estimated, and corrected by as much as samples of it are off.

    How far an estimate is off depends on what it estimates, and a text may be prose here and Base64 there. So
    its pieces are put in the order of their density, and each sample corrects the pieces around it.
    """
    if len(text) <= WHOLE:
        return count(text)
    pieces = [text[start : start + SAMPLE] for start in range(0, len(text), SAMPLE)]
    estimates = [estimate_tokens(piece, family=family) for piece in pieces]
    by_density = sorted(range(len(pieces)), key=lambda at: (estimates[at], at))
    total = 0
    for sample in range(SAMPLES):
        group = by_density[len(pieces) * sample // SAMPLES : len(pieces) * (sample + 1) // SAMPLES]
        middle = group[len(group) // 2]
        estimated = sum(estimates[at] for at in group)
        total += divide_up(estimated * count(pieces[middle]), estimates[middle])
    return total


_PROBE = "hello, world"
_PROOFS = {"3.0": 10, "4.8": 10}
_FAMILIES = {"3.0": "claude3", "4.8": "claude"}


class CachedCounter:
    """Calls `count` once for each text."""

    def __init__(self, count: Callable[[str], int], *, most: int = MOST) -> None:
        self._count = count
        self._most = most
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()

    def __call__(self, text: str) -> int:
        if not text:
            return 0
        key = sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            cached_count = self._counts.get(key)
            if cached_count is not None:
                self._counts.move_to_end(key)
                return cached_count
        # Counting may be slow, so it happens outside the lock.
        count = self._count(text)
        with self._lock:
            self._counts[key] = count
            while len(self._counts) > self._most:
                self._counts.popitem(last=False)
        return count

    def __len__(self) -> int:
        return len(self._counts)
