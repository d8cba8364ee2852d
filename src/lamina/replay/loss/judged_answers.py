"""Keeps judged answers in a file, so that a run that was ended can go on.

Each line has one answer with its losses, and a digest of what was judged: the rows, and the judge. A line
whose digest no answer has any more is of another run or of older sessions, and is not used. A line that was
cut off when a run was ended is no line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO

import msgspec

from lamina.replay.loss.port import AnswerLoss
from lamina.replay.loss.rows import LossRow


class JudgedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The losses of one answer's rows; none if the judge could not read the full context."""

    digest: str
    losses: tuple[AnswerLoss, ...]


def digest_answer(rows: Iterable[LossRow], judge: str) -> str:
    """A name for what is judged: the same rows before the same judge have the same."""
    digest = sha256(judge.encode())
    for row in rows:
        digest.update(msgspec.json.encode(row))
    return digest.hexdigest()[:32]


class KeptAnswers:
    """Answers by their digests, and the file to which more are added; without one they are only held."""

    def __init__(self, answers: dict[str, JudgedAnswer], file: IO[bytes] | None) -> None:
        self.answers = answers
        self._file = file

    def add(self, answer: JudgedAnswer) -> None:
        """Keep one answer, at once: what is judged is not judged again."""
        self.answers[answer.digest] = answer
        if self._file is not None:
            self._file.write(msgspec.json.encode(answer) + b"\n")
            self._file.flush()


@contextmanager
def keep_answers(path: str) -> Iterator[KeptAnswers]:
    """The answers in the file of this name, to which more can be added; without a name they are only held."""
    if not path:
        yield KeptAnswers({}, None)
        return
    with open_to_append(Path(path)) as file:
        file.seek(0)
        answers = {answer.digest: answer for answer in _decode_lines(file)}
        yield KeptAnswers(answers, file)


@contextmanager
def open_to_append(path: Path) -> Iterator[IO[bytes]]:
    """A file of lines, to write more of them.

    A run that was killed may have left half a line without its end. The next line must not become part of it.
    """
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        yield file


def _decode_lines(file: IO[bytes]) -> Iterator[JudgedAnswer]:
    decode = msgspec.json.Decoder(JudgedAnswer).decode
    for line in file:
        try:
            yield decode(line)
        except msgspec.DecodeError:
            continue
