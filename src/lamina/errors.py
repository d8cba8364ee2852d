"""Every error lamina raises, in one tree.

    LaminaError
    ├── BadInput (ValueError)          a value that cannot be used, with its place and what to do
    ├── BudgetExceeded (ValueError)    the smallest possible request is larger than the room
    ├── InvalidRequest (ValueError)    a rule of the API is broken that cannot be mended; nothing is sent
    ├── LawBroken (AssertionError)     a law of lamina does not hold: always a bug, never the caller's
    ├── NotFound (LookupError)         nothing in the log answers to this key
    └── StoreError (RuntimeError)      a conversation could not be kept or read as it was
        ├── Conflict                   another writer was first; nothing of this was written
        ├── Reused (ValueError)        an idempotency key came again with another body
        ├── NotErased                  a text that should be gone is still stored; says where
        ├── Tampered                   a record is not what was written, or not where it was
        │   └── Damaged                the storage gives back other bytes; says which records are whole
        ├── WrongKey (PermissionError) this key does not open this store
        │   └── KeyNeeded              the store is sealed, and no key was given
        └── Broken (OSError)           the storage failed; the handle takes nothing more until reopened

Each inherits the builtin that a caller would catch, and carries its data as attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = [
    "BadInput",
    "Broken",
    "BrokenRule",
    "BudgetExceeded",
    "Conflict",
    "Damaged",
    "InvalidRequest",
    "KeyNeeded",
    "LaminaError",
    "LawBroken",
    "NotErased",
    "NotFound",
    "Reused",
    "StoreError",
    "Tampered",
    "WrongKey",
]


class LaminaError(Exception):
    """The root: catch it to catch everything that lamina raises on purpose."""


class BadInput(LaminaError, ValueError):
    """A value that cannot be used. `place` says where it was, `hint` what to do."""

    def __init__(self, problem: str, *, place: str = "", hint: str = "") -> None:
        self.problem = problem
        self.place = place
        self.hint = hint
        message = problem
        if place:
            message = f"{place}: {message}"
        if hint:
            message = f"{message}; {hint}"
        super().__init__(message)


def blame_function(error: Exception, *, place: str, hint: str = "") -> BadInput:
    """The error of a function that the caller gave, and that raised something. Raise it `from` that.

    An error of lamina's own, such as a refusal in a function that calls lamina, should be raised as it is.
    """
    return BadInput(f"the function raised {type(error).__name__}: {error}", place=place, hint=hint)


def advise_on_version(version: object, own_version: int) -> str:
    """What to do about a stored form of another version than the one that this release reads."""
    if isinstance(version, int) and version > own_version:
        return f"a newer lamina wrote it, and this one reads version {own_version}: update lamina"
    return (
        f"this lamina reads version {own_version}: export it with the one that wrote it, and import it here"
    )


class BudgetExceeded(LaminaError, ValueError):
    """No sequence of lowerings fits the room: `floor` tokens are needed, made up by `segments`.

    `reason` says what keeps a cut from going further, if that is not their size, and `hint` what to do.
    `names` says for the ref or key of a segment where and what it is, in words for a person.
    """

    def __init__(
        self,
        *,
        floor: int,
        room: int,
        segments: tuple[tuple[str, int], ...],
        reason: str = "",
        hint: str = "shorten or unpin these, or give a larger window or a smaller reserve",
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.floor = floor
        self.room = room
        self.segments = segments
        self.reason = reason
        self.hint = hint
        self.names = dict(names or {})
        sizes = f"the smallest possible request has {floor:,} tokens, and {room:,} are allowed"
        if reason:
            sizes = f"{sizes} ({reason})"
        largest = ", ".join(
            f"{self.names.get(key, repr(key))}: {tokens:,} tokens" for key, tokens in segments[:3]
        )
        super().__init__(f"{sizes}; largest of what cannot be left out: {largest or 'nothing'}; {hint}")


class BrokenRule(Protocol):
    """One rule of an API that a request breaks, as a dialect's `check` reports it."""

    @property
    def rule(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def message(self) -> str: ...


class InvalidRequest(LaminaError, ValueError):
    """The API would refuse the request, and repairing it would mean to invent what somebody says.

    It is raised before anything is sent. `violations` are the rules that are broken, in the order of the
    dialect's rules; `words` are the first words of the message that breaks the first of them.
    """

    def __init__(self, violations: Sequence[BrokenRule], *, words: str = "", hint: str = "") -> None:
        self.violations = tuple(violations)
        self.words = words
        self.hint = hint
        first = self.violations[0]
        place = first.place
        if words:
            place = f"{place} ({words!r})"
        message = f"{place}: {first.message} (rule {first.rule})"
        if hint:
            message = f"{message}; {hint}"
        others = len(self.violations) - 1
        if others:
            message = f"{message} ({others} more in violations)"
        super().__init__(message)


class LawBroken(LaminaError, AssertionError):
    """A law does not hold for an envelope. Please report it: the message names law and entry."""

    def __init__(self, law: str, detail: str) -> None:
        self.law = law
        self.detail = detail
        super().__init__(f"law {law!r} does not hold: {detail}")


class NotFound(LaminaError, LookupError):
    """Nothing that is kept answers to this key. `hint` says where to look instead."""

    def __init__(self, key: str, *, hint: str = "") -> None:
        self.key = key
        self.hint = hint
        message = f"nothing answers to {key!r}"
        if hint:
            message = f"{message}; {hint}"
        super().__init__(message)


class StoreError(LaminaError, RuntimeError):
    """A conversation could not be kept or read as it was. `conversation` names it."""

    def __init__(self, problem: str, *, conversation: str = "", hint: str = "") -> None:
        self.problem = problem
        self.conversation = conversation
        self.hint = hint
        message = problem
        if conversation:
            message = f"conversation {conversation!r}: {message}"
        if hint:
            message = f"{message}; {hint}"
        super().__init__(message)


class Conflict(StoreError):
    """Another writer appended first: `found` records are there, not the `expected` ones."""

    def __init__(self, *, conversation: str, expected: int, found: int, problem: str = "") -> None:
        self.expected = expected
        self.found = found
        hint = "read what is new, build again, and append to that"
        problem = problem or f"{found} records, not {expected}"
        super().__init__(problem, conversation=conversation, hint=hint)


class Reused(StoreError, ValueError):
    """An idempotency key that was used for something else."""


class NotErased(StoreError):
    """What was erased still stands in some `places`, where lamina erases nothing. `erased` messages are gone.

    A place is the name of a tool, a field of the request, or another message that quotes this one.
    """

    def __init__(self, places: Sequence[str], *, conversation: str, erased: int) -> None:
        self.places = tuple(places)
        self.erased = erased
        shown = ", ".join(self.places[:_SHOWN_PLACES])
        if len(self.places) > _SHOWN_PLACES:
            shown += f" and {len(self.places) - _SHOWN_PLACES:,} more"
        hint = "erase the messages that quote it, or delete the conversation"
        super().__init__(f"its text still stands in {shown}", conversation=conversation, hint=hint)


_SHOWN_PLACES = 5
"""Places that the message of an error names."""


class Tampered(StoreError):
    """A record is not what was written, or is not where it was written."""


class Damaged(Tampered):
    """A checksum or a count does not hold. `whole` are the records of the conversation that can be read.

    Whoever changes bytes on purpose can change a checksum, too: only a sealed store notices that.
    """

    def __init__(
        self, problem: str, *, conversation: str = "", hint: str = "", whole: Sequence[int] | None = None
    ) -> None:
        hint = (
            hint or "restore it from a backup, or keep what can be read: lamina store export NAME --damaged"
        )
        self.whole: tuple[int, ...] | None = None
        if whole is not None:
            self.whole = tuple(whole)
            hint = f"{_describe_readable(self.whole)}; {hint}"
        super().__init__(problem, conversation=conversation, hint=hint)


def _describe_readable(places: tuple[int, ...]) -> str:
    """Places as runs: "records 0 to 6, 8 and 12 to 14 can be read"."""
    if not places:
        return "none of its records can be read"
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] + 1 == place:
            runs[-1] = [runs[-1][0], place]
        else:
            runs.append([place])
    *first_runs, last_run = [" to ".join(str(end) for end in run) for run in runs]
    records = last_run
    if first_runs:
        records = f"{', '.join(first_runs)} and {last_run}"
    noun = "record" if len(places) == 1 else "records"
    return f"{noun} {records} can be read"


class WrongKey(StoreError, PermissionError):
    """The key does not open this store: never the same as an empty one."""


class KeyNeeded(WrongKey):
    """The store is sealed, and was asked without a key."""

    def __init__(self, problem: str = "", *, conversation: str = "", hint: str = "") -> None:
        hint = hint or (
            "give its key: Session.open(address, ..., key=key) or Sealed(store, key) in Python, --key-file "
            "for a command, or LAMINA_KEY"
        )
        super().__init__(problem or "this store is sealed", conversation=conversation, hint=hint)


class Broken(StoreError, OSError):
    """The storage failed while writing. What was acknowledged before is kept; open the store again."""
