"""The cases of a conformance suite: what each promises, and how it says that a promise is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

__all__ = ["Conformance", "expect", "expect_equal", "make_cases"]

Trial = TypeVar("Trial")


class Conformance(NamedTuple):
    """One promise, ready to be tried: call it in a test. It raises AssertionError if it is not kept."""

    name: str
    run: Callable[[], None]

    def __call__(self) -> None:
        self.run()

    def __str__(self) -> str:
        return self.name


def make_cases(
    name: str, promises: Sequence[Callable[[Trial], object]], try_promise: Callable[..., None]
) -> list[Conformance]:
    """A case for each promise, which calls `try_promise` with it. Its title is the function's name."""
    cases: list[Conformance] = []
    for promise in promises:
        title = promise.__name__.replace("_", " ")
        if name:
            title = f"{name}: {title}"
        cases.append(Conformance(title, partial(try_promise, promise)))
    return cases


def expect(holds: object, problem: str) -> None:
    """Raise AssertionError if something does not hold, also where `python -O` leaves out asserts."""
    if not holds:
        raise AssertionError(problem)


def expect_equal(answer: object, due: object, place: str = "") -> None:
    """Raise AssertionError if an answer is not the one that was due. `place` says where it was given."""
    if answer == due:
        return
    problem = f"{due!r} was due, not {answer!r}"
    if place:
        problem = f"{place}: {problem}"
    raise AssertionError(problem)
