"""Vectors of the chunks, compared one by one with that of a question: exact, and fast enough for 200,000.

Needs numpy (`lamina[vectors]`), which is imported when the first vector comes. It knows numbers of chunks,
not their text, and does not make vectors: that is an embedder's work.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from lamina.errors import BadInput


class Vectors:
    """Unit vectors by the numbers of their chunks. For one thread at a time."""

    def __init__(self) -> None:
        self._np = _numpy()
        self._numbers: list[int] = []
        self._rows: dict[int, int] = {}
        self._matrix: Any = None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> set[int]:
        return set(self._numbers)

    def add(self, numbers: Sequence[int], blobs: Iterable[bytes]) -> None:
        """Adds vectors as `packed` made them."""
        given = list(blobs)
        self.check(given)
        made = [self._np.frombuffer(blob, dtype=self._np.float32) for blob in given]
        if not made:
            return
        self._room(len(made), len(made[0]))
        start = len(self)
        self._matrix[start : start + len(made)] = made
        self._numbers += numbers
        self._rows.update(zip(numbers, range(start, start + len(made)), strict=True))

    def check(self, blobs: Sequence[bytes]) -> None:
        """Refuses vectors that are not as long as those that are there."""
        same_length(blobs, self._matrix.shape[1] if len(self) else 0)

    def drop(self, numbers: Iterable[int]) -> None:
        """Forgets vectors: the last takes the place of one that goes."""
        for number in numbers:
            row = self._rows.pop(number, None)
            if row is None:
                continue
            last = self._numbers.pop()
            if last != number:
                self._matrix[row] = self._matrix[len(self._numbers)]
                self._numbers[row], self._rows[last] = last, row

    def near(
        self, blob: bytes, most: int, among: Iterable[int] | None = None, also: Iterable[int] = ()
    ) -> dict[int, float]:
        """The nearest chunks and those of `also`, from 0 (the farthest of all) to 1 (the nearest)."""
        rows = range(len(self)) if among is None else [self._rows[one] for one in among if one in self._rows]
        if not len(rows):
            return {}
        self.check([blob])
        wanted = self._np.frombuffer(blob, dtype=self._np.float32)
        used = self._matrix[: len(self)] if among is None else self._matrix[rows]
        scores = used @ wanted
        low, high = float(scores.min()), float(scores.max())
        best = self._np.argpartition(-scores, min(most, len(rows)) - 1)[:most]
        nearest = {self._numbers[rows[int(at)]]: float(scores[at]) for at in best}
        nearest |= {one: float(self._matrix[self._rows[one]] @ wanted) for one in also if one in self._rows}
        return {one: (it - low) / (high - low) if high > low else 1.0 for one, it in nearest.items()}

    def _room(self, more: int, width: int) -> None:
        need = len(self) + more
        if self._matrix is None or need > len(self._matrix):
            grown = self._np.zeros((max(need, 2 * len(self)), width), dtype=self._np.float32)
            if len(self):
                grown[: len(self)] = self._matrix[: len(self)]
            self._matrix = grown


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
