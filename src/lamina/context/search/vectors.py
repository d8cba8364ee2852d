"""Vectors of the chunks, compared with that of a question.

Up to 20,000 are all compared. Of more, the signs of their numbers are: 2,000 that share most signs with the
question are then compared in full, so that a chunk among the nearest is seldom missed. Needs numpy
(`lamina[vectors]`), which is imported when the first vector comes; before numpy 2 all are compared. It knows
numbers of chunks, not their text, and does not make vectors: that is an embedder's work.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from lamina.errors import BadInput

EXACT = 20_000
"""Vectors that are all compared; of more, only those whose signs are most like the question's."""

PROMISING, FARTHEST = 2_000, 64
"""How many those are, and how many of the least alike are compared too: they say how far the farthest is."""


class Vectors:
    """Unit vectors by the numbers of their chunks. For one thread at a time."""

    def __init__(self) -> None:
        self._np = _numpy()
        self._numbers: list[int] = []
        self._rows: dict[int, int] = {}
        self._matrix: Any = None
        self._signs: Any = None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> set[int]:
        return set(self._numbers)

    def add(self, numbers: Sequence[int], blobs: Iterable[bytes]) -> None:
        """Adds vectors as `packed` made them."""
        given = list(blobs)
        width = self.check(given)
        if not given:
            return
        made = self._np.frombuffer(b"".join(given), dtype=self._np.float32).reshape(-1, width)
        self._room(len(made), width)
        start = len(self)
        self._matrix[start : start + len(made)] = made
        self._signs[:, start : start + len(made)] = self._signs_of(made).T
        self._numbers += numbers
        self._rows.update(zip(numbers, range(start, start + len(made)), strict=True))

    def check(self, blobs: Sequence[bytes]) -> int:
        """Refuses vectors that are not as long as those that are there; says how long."""
        return same_length(blobs, self._matrix.shape[1] if len(self) else 0)

    def drop(self, numbers: Iterable[int]) -> None:
        """Forgets vectors: the last takes the place of one that goes."""
        for number in numbers:
            row = self._rows.pop(number, None)
            if row is None:
                continue
            last = self._numbers.pop()
            if last != number:
                self._matrix[row] = self._matrix[len(self._numbers)]
                self._signs[:, row] = self._signs[:, len(self._numbers)]
                self._numbers[row], self._rows[last] = last, row

    def near(
        self, blob: bytes, most: int, among: Iterable[int] | None = None, also: Iterable[int] = ()
    ) -> dict[int, float]:
        """The nearest chunks and those of `also`, from 0 (the farthest of all) to 1 (the nearest)."""
        rows = None if among is None else self._rows_of(among)
        if not (len(self) if rows is None else len(rows)):
            return {}
        self.check([blob])
        wanted = self._np.frombuffer(blob, dtype=self._np.float32)
        rows = self._promising(wanted, rows, max(PROMISING, 10 * most))
        scores = self._compared(slice(len(self)) if rows is None else rows, wanted)
        low, high = float(scores.min()), float(scores.max())
        best = self._np.argpartition(-scores, min(most, len(scores)) - 1)[:most]
        others = self._rows_of(also)
        found = zip(
            [*(best if rows is None else rows[best]).tolist(), *others.tolist()],
            [*scores[best].tolist(), *self._compared(others, wanted).tolist()],
            strict=True,
        )
        span = high - low
        return {self._numbers[row]: max(it - low, 0.0) / span if span > 0 else 1.0 for row, it in found}

    def _rows_of(self, numbers: Iterable[int]) -> Any:
        rows = [self._rows[one] for one in numbers if one in self._rows]
        return self._np.array(rows, dtype=self._np.int64)

    def _compared(self, rows: Any, wanted: Any) -> Any:
        """Not by `@` where it can be helped: its threads wait in a loop, at a cost to all."""
        used = self._matrix[rows]
        return self._np.vecdot(used, wanted) if hasattr(self._np, "vecdot") else used @ wanted

    def _promising(self, wanted: Any, rows: Any, most: int) -> Any:
        """Which rows to compare: all of few, else those with most and least signs of the question."""
        np = self._np
        if (len(self) if rows is None else len(rows)) <= EXACT or not hasattr(np, "bitwise_count"):
            return rows
        signs = self._signs[:, : len(self)] if rows is None else self._signs[:, rows]
        apart = np.zeros(signs.shape[1], dtype=np.uint16)
        for column, one in zip(signs, self._signs_of(wanted[None])[0], strict=True):
            apart += np.bitwise_count(column ^ one)
        upto = np.cumsum(np.bincount(apart))
        kept = apart <= np.searchsorted(upto, most)
        kept |= apart >= np.searchsorted(upto, len(apart) - FARTHEST)
        found = np.flatnonzero(kept)
        return found if rows is None else rows[found]

    def _signs_of(self, matrix: Any) -> Any:
        """One bit for each number of a vector, 64 together: two vectors that are near share most."""
        bits = self._np.packbits(matrix > 0, axis=1)
        bits = self._np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
        return self._np.ascontiguousarray(bits).view(self._np.uint64)

    def _room(self, more: int, width: int) -> None:
        need, np = len(self) + more, self._np
        if self._matrix is None or need > len(self._matrix):
            size = max(need, 2 * len(self))
            matrix = np.zeros((size, width), dtype=np.float32)
            signs = np.zeros((-(-width // 64), size), dtype=np.uint64)
            if len(self):
                matrix[: len(self)] = self._matrix[: len(self)]
                signs[:, : len(self)] = self._signs[:, : len(self)]
            self._matrix, self._signs = matrix, signs


def same_length(blobs: Sequence[bytes], width: int) -> int:
    """How many numbers each vector has; refuses some that differ from one another, or from `width`."""
    widths = {len(blob) // 4 for blob in blobs} | ({width} if width else set())
    if len(widths) > 1:
        raise BadInput("vectors of different lengths", place="embedder", hint="index everything with one")
    return widths.pop() if widths else 0


def packed(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """Vectors of length one, as bytes; one that is not finite or is all zeros is refused."""
    np = _numpy()
    if not len(vectors):
        return []
    matrix = np.asarray(vectors, dtype=np.float32)
    sizes = np.linalg.norm(matrix, axis=-1, keepdims=True) if matrix.ndim == 2 else np.zeros(1)
    if not (np.isfinite(sizes).all() and (sizes > 0).all()):
        hint = "it must give one list of numbers for each text"
        raise BadInput("a vector that has no direction", place="embedder", hint=hint)
    return [row.tobytes() for row in matrix / sizes]


def _numpy() -> Any:
    try:
        return importlib.import_module("numpy")
    except ImportError:
        hint = "install lamina[vectors]"
        raise BadInput("vectors need numpy", place="embedder", hint=hint) from None
