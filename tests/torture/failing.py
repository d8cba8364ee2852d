"""The k-th change fails, for k = 1, 2, 3 ... until a run has so few: once, and from then on for ever.

Whatever fails, the caller gets an error of lamina; a handle that is broken takes nothing more; and who opens
the store again finds everything that was acknowledged, and can send the rest again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec

from lamina.errors import Broken, LaminaError
from tests.torture.children import Say, failure, forked
from tests.torture.medium import Call, Said, Write
from tests.torture.outcome import Outcome, Tally
from tests.torture.shim import Shim, Torn
from tests.torture.telling import Telling

TURNS = 5
STRUCK, REFUSED = "struck", "refused "


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A way to fail. `torn`: half of what was to be written is there all the same."""

    error: int
    lasting: bool
    torn: bool = False

    def __str__(self) -> str:
        kind = f"{errno.errorcode[self.error]}{', torn' if self.torn else ''}"
        return f"{kind}, {'for ever' if self.lasting else 'once'}"


FAULTS = (
    Fault(error=errno.EIO, lasting=False),
    Fault(error=errno.EIO, lasting=True),
    Fault(error=errno.EIO, lasting=False, torn=True),
    Fault(error=errno.ENOSPC, lasting=False),
    Fault(error=errno.ENOSPC, lasting=True, torn=True),
)


def failing(
    telling: Callable[[], Telling],
    *,
    most: int | None = None,
    step: int = 1,
    turns: int = TURNS,
    within: str | None = None,
) -> Outcome:
    """Every change of a short story fails, in every way. `step` leaves out some, `most` stops early."""
    tally = Tally("failing I/O")
    for fault in FAULTS:
        for number in count(1, step):
            with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
                struck = _failed(telling(), Path(folder) / "store", _Blow(fault, number), turns, tally)
            if not struck or (most is not None and number >= most):
                break
    return tally.outcome()


def _failed(telling: Telling, folder: Path, blow: _Blow, turns: int, tally: Tally) -> bool:
    """Whether there was a change to be struck."""
    folder.mkdir()
    tally.tries += 1
    lines = forked(lambda say: _write(telling, str(folder), blow, turns, say)).said()
    acknowledged = sum(line.isdigit() for line in lines)
    tally.acknowledged += acknowledged
    try:
        assert not failure(lines), failure(lines)
        for line in lines:
            if line.startswith(REFUSED):
                tally.note(line.removeprefix(REFUSED))
        telling.check(str(folder), acknowledged)
    except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
        tally.broken(str(blow), error)
    return STRUCK in lines


def _write(telling: Telling, folder: str, blow: _Blow, turns: int, say: Say) -> None:
    blow.say = say
    Shim(folder, blow).place()
    anyio.run(_told, telling, folder, turns, say)


class _Blow:
    """Counts changes, and fails the one with this number."""

    def __init__(self, fault: Fault, number: int) -> None:
        self._fault, self._number = fault, number
        self._seen = 0
        self.say: Say = lambda _: None

    def __str__(self) -> str:
        return f"change {self._number}, {self._fault}"

    def __call__(self, call: Call) -> None:
        if isinstance(call, Said):
            return
        self._seen += 1
        if self._seen < self._number or (self._seen > self._number and not self._fault.lasting):
            return
        if self._seen == self._number:
            self.say(STRUCK)
        if self._fault.torn and isinstance(call, Write):
            raise Torn(self._fault.error, len(call.data) // 2)
        raise OSError(self._fault.error, os.strerror(self._fault.error))


async def _told(telling: Telling, folder: str, turns: int, say: Say) -> None:
    """Tell the story until the store refuses; then once more on the same handle."""
    try:
        async with telling.open(folder) as store:
            for number in range(turns):
                try:
                    await telling.tell(store, number)
                except LaminaError as error:
                    say(f"{REFUSED}{type(error).__name__}")
                    if isinstance(error, Broken):
                        await _poisoned(telling, store, number)
                    return
                say(str(number))
    except LaminaError as error:
        say(f"{REFUSED}{type(error).__name__} at open or close")


async def _poisoned(telling: Telling, store: object, number: int) -> None:
    try:
        await telling.tell(store, number)  # type: ignore[arg-type]
    except Broken:
        return
    raise AssertionError("a broken handle took another group")
