"""Every error lamina raises, in one tree.

    LaminaError
    ├── BadInput (ValueError)          a value that cannot be used, with its place and what to do
    ├── BudgetExceeded (ValueError)    the smallest possible request is larger than the room
    ├── LawBroken (AssertionError)     a law of lamina does not hold: always a bug, never the caller's
    └── NotFound (LookupError)         nothing in the log answers to this key

Each inherits the builtin that a caller would catch, and carries its data as attributes.
"""

from __future__ import annotations


class LaminaError(Exception):
    """The root: catch it to catch everything that lamina raises on purpose."""


class BadInput(LaminaError, ValueError):
    """A value that cannot be used. `place` says where it stood, `hint` what to do."""

    def __init__(self, problem: str, *, place: str = "", hint: str = "") -> None:
        self.problem = problem
        self.place = place
        self.hint = hint
        text = f"{place}: {problem}" if place else problem
        super().__init__(f"{text}; {hint}" if hint else text)


class BudgetExceeded(LaminaError, ValueError):
    """No sequence of lowerings fits the room: `floor` tokens are needed, made up by `segments`."""

    def __init__(
        self, *, floor: int, room: int, segments: tuple[tuple[str, int], ...], reason: str = ""
    ) -> None:
        self.floor = floor
        self.room = room
        self.segments = segments
        self.reason = reason
        largest = ", ".join(f"{key!r} ({tokens:,} tokens)" for key, tokens in segments[:3])
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"the smallest possible request has {floor:,} tokens and the room is {room:,}{why}; "
            f"largest of what cannot be lowered: {largest or 'nothing'}; "
            "shorten or unpin these, or give a larger window or a smaller reserve"
        )


class LawBroken(LaminaError, AssertionError):
    """A law does not hold for an envelope. Please report it: the message names law and entry."""

    def __init__(self, law: str, detail: str) -> None:
        self.law = law
        self.detail = detail
        super().__init__(f"law {law!r} does not hold: {detail}")


class NotFound(LaminaError, LookupError):
    """No segment of the log answers to this key."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"no segment answers to {key!r}; pass the log that the request was built from")
