"""Compares the vectors of the chunks with the vector of a question.

Up to 20,000 vectors are all compared. Of more, the signs of their numbers are compared first: the 2,000 that
share most signs with the question are then compared in full, so one of the nearest is seldom missed.

This needs numpy (extra: search), which is imported with the first vector. Before numpy 2 all vectors are
compared. This module knows numbers of chunks, not their text. An embedder makes the vectors.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from lamina.errors import BadInput

EXACT = 20_000
"""Vectors that are all compared. Of more, only those whose signs are most like the question's."""

PROMISING = 2_000
"""How many of those are compared."""

FARTHEST = 64
"""How many of the least alike are compared too. They say how far the farthest is."""


class Vectors:
    """Unit vectors by the numbers of their chunks. One thread uses it at a time."""

    def __init__(self) -> None:
        self._np = _import_numpy()
        self._numbers: list[int] = []
        self._rows: dict[int, int] = {}
        self._matrix: Any = None
        self._signs: Any = None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> set[int]:
        """The chunks that have a vector."""
        return set(self._numbers)

    def add(self, numbers: Sequence[int], blobs: Iterable[bytes]) -> None:
        """Add vectors that `pack_vectors` packed."""
        new_blobs = list(blobs)
        width = self.check(new_blobs)
        if not new_blobs:
            return
        vectors = self._np.frombuffer(b"".join(new_blobs), dtype=self._np.float32).reshape(-1, width)
        self._make_room(len(vectors), width)
        start = len(self)
        end = start + len(vectors)
        self._matrix[start:end] = vectors
        self._signs[:, start:end] = self._pack_signs(vectors).T
        self._numbers += numbers
        self._rows.update(zip(numbers, range(start, end), strict=True))

    def check(self, blobs: Sequence[bytes]) -> int:
        """Refuse vectors of another length than those that are there. Returns the length."""
        width = self._matrix.shape[1] if len(self) else 0
        return common_length(blobs, width)

    def drop(self, numbers: Iterable[int]) -> None:
        """Remove vectors. The last vector takes the place of a removed one."""
        for number in numbers:
            row = self._rows.pop(number, None)
            if row is None:
                continue
            last_number = self._numbers.pop()
            if last_number != number:
                last_row = len(self._numbers)
                self._matrix[row] = self._matrix[last_row]
                self._signs[:, row] = self._signs[:, last_row]
                self._numbers[row] = last_number
                self._rows[last_number] = row

    def near(
        self, blob: bytes, most: int, among: Iterable[int] | None = None, also: Iterable[int] = ()
    ) -> dict[int, float]:
        """The nearest chunks and those of `also`, from 0 (the farthest of all) to 1 (the nearest).

        Scores are stretched over the whole range: the nearest of all that are compared has 1, the farthest 0.
        """
        np = self._np
        rows = None
        if among is not None:
            rows = self._rows_of(among)
        if not self._count_rows(rows):
            return {}
        self.check([blob])
        question = np.frombuffer(blob, dtype=np.float32)
        rows = self._choose_promising(question, rows, max(PROMISING, 10 * most))
        scores = self._compare(rows, question)
        best = np.argpartition(-scores, min(most, len(scores)) - 1)[:most]
        best_rows = best
        if rows is not None:
            best_rows = rows[best]
        other_rows = self._rows_of(also)
        all_rows = [*best_rows.tolist(), *other_rows.tolist()]
        all_scores = [*scores[best].tolist(), *self._compare(other_rows, question).tolist()]
        lowest = float(scores.min())
        spread = float(scores.max()) - lowest
        nearness = {}
        for row, score in zip(all_rows, all_scores, strict=True):
            # one of `also` may be farther than all that were compared
            nearness[self._numbers[row]] = max(score - lowest, 0.0) / spread if spread > 0 else 1.0
        return nearness

    def _rows_of(self, numbers: Iterable[int]) -> Any:
        """The rows of those of these chunks that have a vector."""
        rows = [self._rows[number] for number in numbers if number in self._rows]
        return self._np.array(rows, dtype=self._np.int64)

    def _count_rows(self, rows: Any) -> int:
        """How many rows these are. Here and below, None means all rows: an array of all would be copied."""
        if rows is None:
            return len(self)
        return len(rows)

    def _compare(self, rows: Any, question: Any) -> Any:
        """The scores of these rows.

        The operator `@` is only used before numpy 2: its threads wait in a loop, which costs everybody.
        """
        used = self._matrix[: len(self)] if rows is None else self._matrix[rows]
        if hasattr(self._np, "vecdot"):
            return self._np.vecdot(used, question)
        return used @ question

    def _choose_promising(self, question: Any, rows: Any, most: int) -> Any:
        """The rows to compare: all of few, else those that share most and fewest signs with the question.

        Signs take a thirty-second of the memory of the numbers. Those that share the fewest are needed for
        the lower end of the range.
        """
        np = self._np
        if self._count_rows(rows) <= EXACT or not hasattr(np, "bitwise_count"):
            return rows
        signs = self._signs[:, : len(self)] if rows is None else self._signs[:, rows]
        differing_signs = np.zeros(signs.shape[1], dtype=np.uint16)
        for column, question_signs in zip(signs, self._pack_signs(question[None])[0], strict=True):
            differing_signs += np.bitwise_count(column ^ question_signs)
        rows_up_to = np.cumsum(np.bincount(differing_signs))
        is_near = differing_signs <= np.searchsorted(rows_up_to, most)
        # those that share the fewest signs say where the range of scores begins
        is_far = differing_signs >= np.searchsorted(rows_up_to, len(differing_signs) - FARTHEST)
        promising = np.flatnonzero(is_near | is_far)
        if rows is None:
            return promising
        return rows[promising]

    def _pack_signs(self, matrix: Any) -> Any:
        """One bit for each number of a vector, 64 together. Two vectors that are near share most bits."""
        bits = self._np.packbits(matrix > 0, axis=1)
        bits = self._np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
        return self._np.ascontiguousarray(bits).view(self._np.uint64)

    def _make_room(self, more: int, width: int) -> None:
        """Make the matrix large enough for `more` vectors; at least twice as large, if it has to grow."""
        np = self._np
        size = len(self)
        needed = size + more
        if self._matrix is not None and needed <= len(self._matrix):
            return
        new_size = max(needed, 2 * size)
        matrix = np.zeros((new_size, width), dtype=np.float32)
        signs = np.zeros((-(-width // 64), new_size), dtype=np.uint64)
        if size:
            matrix[:size] = self._matrix[:size]
            signs[:, :size] = self._signs[:, :size]
        self._matrix = matrix
        self._signs = signs


def common_length(blobs: Sequence[bytes], width: int) -> int:
    """How many numbers each vector has. Refuses vectors that differ from one another, or from `width`."""
    widths = {len(blob) // 4 for blob in blobs}
    if width:
        widths.add(width)
    if len(widths) > 1:
        raise BadInput("vectors of different lengths", place="embedder", hint="index everything with one")
    return max(widths, default=0)


def pack_vectors(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """The vectors with length one, as bytes. Refuses one that is not finite or is all zeros.

    With length one, the product of two vectors says how near they are.
    """
    np = _import_numpy()
    if not len(vectors):
        return []
    matrix = np.asarray(vectors, dtype=np.float32)
    sizes = np.zeros(1)
    if matrix.ndim == 2:
        sizes = np.linalg.norm(matrix, axis=-1, keepdims=True)
    have_direction = np.isfinite(sizes) & (sizes > 0)
    if not have_direction.all():
        hint = "it must give one list of numbers for each text"
        raise BadInput("a vector that has no direction", place="embedder", hint=hint)
    return [row.tobytes() for row in matrix / sizes]


def _import_numpy() -> Any:
    """NumPy. Raises BadInput, which names the extra, if it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        hint = "install lamina-context[search]"
        raise BadInput("vectors need numpy", place="embedder", hint=hint) from None
