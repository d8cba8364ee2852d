"""The short version of the torture kit, on every store. `make torture` has the long one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lamina.errors import BadInput
from lamina.stores import Store, open_files
from lamina.testing import Conformance
from tests.torture import Effort, Place, Trial, place_at, suite, trials

SHORT = Effort(
    kills=3,
    cuts=3,
    failures=60,
    turns=8,
    erasures=1,
    lies=6,
    edits=3,
    damages=7,
    server_kills=1,
)
NAMES = [trial.name for trial in trials(Place(name="", open=open_files, local=False), SHORT)]
LEFT_OUT = {
    "sqlite:": {"server killed"},
    "files:": {"server killed"},
    "memory:": {
        "kill -9",
        "power cut",
        "failing I/O",
        "disk full",
        "concurrent writers",
        "edited files",
        "damage",
        "erasure",
        "stepping clock",
        "server killed",
    },
}


@pytest.mark.parametrize(("url", "name"), [(url, name) for url in LEFT_OUT for name in NAMES])
def test_nothing_is_lost(url: str, name: str) -> None:
    with place_at(url) as place:
        _holds(next(trial for trial in trials(place, SHORT) if trial.name == name), LEFT_OUT[url])


def test_nothing_is_lost_on_postgres() -> None:
    chosen = ("kill -9", "server killed", "concurrent writers", "erasure by key")
    with place_at("postgres:") as place:
        for trial in trials(place, SHORT):
            if trial.name in chosen:
                _holds(trial, set())


def _holds(trial: Trial, left_out: set[str]) -> None:
    outcome = trial.run()
    assert outcome.violations == ()
    assert bool(outcome.left_out) == (trial.name in left_out)
    assert outcome.tries > 0 or outcome.left_out


def test_the_suite_is_for_any_store() -> None:
    cases = suite(_opened, name="mine", effort=SHORT)
    assert [case.name for case in cases] == [f"mine: {name}" for name in NAMES]
    _case(cases, "mine: tampering")()


@asynccontextmanager
async def _opened(folder: str) -> AsyncIterator[Store]:
    async with open_files(folder) as store:
        yield store


def _case(cases: list[Conformance], name: str) -> Conformance:
    return next(case for case in cases if case.name == name)


@pytest.mark.parametrize("url", ["", "sqlite", "mysql:x", "/tmp/chats.db"])  # noqa: S108
def test_an_address_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="store: "), place_at(url):
        pass


def test_what_is_below_the_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "chats.db").write_bytes(b"mine")
    with place_at(f"sqlite:{tmp_path}") as place:
        _holds(next(iter(_only(place, "tampering"))), set())
    assert [path.name for path in tmp_path.iterdir()] == ["chats.db"]
    assert (tmp_path / "chats.db").read_bytes() == b"mine"


def _only(place: Place, name: str) -> Iterator[Trial]:
    return (trial for trial in trials(place, SHORT) if trial.name == name)
