"""All trials of one store, each with what it costs; those that make no sense for it say why."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import msgspec

from tests.torture import shim, strace
from tests.torture.clock import clock
from tests.torture.damage import damage
from tests.torture.erasure import erasure
from tests.torture.failing import failing
from tests.torture.full import can_mount, full
from tests.torture.kill import kills
from tests.torture.outcome import Outcome
from tests.torture.places import Place
from tests.torture.powercut import cuts
from tests.torture.server import server_kills
from tests.torture.story import Story
from tests.torture.tamper import edits, tamper
from tests.torture.telling import Telling
from tests.torture.writers import writers


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How often everything is tried. `failures` is the distance between two changes that fail; 1 is all."""

    kills: int = 40
    cuts: int = 40
    failures: int = 9
    writers: int = 8
    turns: int = 6
    erasures: int = 4
    disks: int = 1
    lies: int = 60
    edits: int = 30
    damages: int = 35
    server_kills: int = 3
    mount: bool = False
    seed: int = 0


SHORT = Effort()
LONG = Effort(
    kills=2_000,
    cuts=1_000,
    failures=1,
    turns=200,
    erasures=100,
    disks=20,
    lies=2_000,
    edits=1_000,
    damages=2_000,
    server_kills=100,
    mount=True,
)

DIES = "it does not outlive its process"
NOT_LOCAL = "it keeps nothing in a folder"


class Trial(msgspec.Struct, frozen=True):
    """One promise, and how it is tried."""

    name: str
    promise: str
    run: Callable[[], Outcome]


def trials(place: Place, effort: Effort = SHORT) -> list[Trial]:
    """What is tried on this store, in order."""
    told = partial(Telling, place.open)
    within, seed = place.within, effort.seed
    kill_latest = 0.06 if place.local else 0.2
    return [
        Trial(
            "kill -9",
            "P1 P6",
            _if(
                place.lasting,
                DIES,
                lambda: kills(told, effort.kills, seed=seed, within=within, latest=kill_latest),
            ),
        ),
        Trial("power cut", "P2 P6", lambda: _cuts(place, effort)),
        Trial("failing I/O", "P3 P6", lambda: _failing(place, effort)),
        Trial("disk full", "P3", lambda: _full(place, effort)),
        Trial(
            "concurrent writers",
            "P5 P6",
            _if(
                place.lasting, DIES, lambda: writers(place.open, effort.writers, effort.turns, within=within)
            ),
        ),
        Trial("tampering", "P4", lambda: tamper(place.open, effort.lies, seed=seed, within=within)),
        Trial(
            "edited files",
            "P4",
            _if(place.local, NOT_LOCAL, lambda: edits(place.open, effort.edits, seed=seed, within=within)),
        ),
        Trial(
            "damage",
            "P4",
            _if(place.local, NOT_LOCAL, lambda: damage(place.open, effort.damages, seed=seed, within=within)),
        ),
        Trial(
            "erasure",
            "P18",
            _if(
                place.local, NOT_LOCAL, lambda: erasure(place.open, effort.erasures, seed=seed, within=within)
            ),
        ),
        Trial("stepping clock", "P21", _if(place.lasting, DIES, lambda: clock(told, within=within))),
        Trial("server killed", "P22", lambda: _server(place, effort)),
    ]


def _if(possible: bool, why: str, run: Callable[[], Outcome]) -> Callable[[], Outcome]:  # noqa: FBT001
    return run if possible else lambda: Outcome(trial="", left_out=why)


def _cuts(place: Place, effort: Effort) -> Outcome:
    if not place.local:
        return Outcome(trial="power cut", left_out=NOT_LOCAL)
    if _strace():
        told, recorder = partial(Telling, place.open), strace.recorded
    elif place.shimmed is not None:
        told, recorder = partial(Telling, place.shimmed), shim.recorded
    else:
        return Outcome(trial="power cut", left_out="there is no strace that may look, and no apsw")
    return cuts(told, effort.cuts, recorder, seed=effort.seed, within=place.within)


@cache
def _strace() -> bool:
    return strace.usable()


def _failing(place: Place, effort: Effort) -> Outcome:
    if place.shimmed is None:
        why = "there is no apsw" if place.local else NOT_LOCAL
        return Outcome(trial="failing I/O", left_out=why)
    told = partial(Telling, place.shimmed, Story())
    return failing(told, step=effort.failures, within=place.within)


def _full(place: Place, effort: Effort) -> Outcome:
    mount = effort.mount and place.local and can_mount()
    opener = place.open if mount else place.shimmed
    if opener is None:
        return Outcome(
            trial="disk full", left_out="nothing can be mounted, and no apsw" if place.local else NOT_LOCAL
        )
    return full(partial(Telling, opener), effort.disks, mount=mount, within=place.within)


def _server(place: Place, effort: Effort) -> Outcome:
    if place.server is None:
        return Outcome(trial="server killed", left_out="it has no server of ours")
    return server_kills(partial(Telling, place.open), place.server, effort.server_kills, seed=effort.seed)
