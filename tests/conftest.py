"""How tests run, whichever they are: Hypothesis profiles, processes, memory, and what a run says at its end.

No fixtures live here: a test says what it needs.

`quick` tries the same examples each time, so that `make test` passes or fails for the same code; the others
try other examples each time. `make seeds` runs every property with ten seeds, and what is marked `thorough`.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.summary import summarize

HERE = Path(__file__).resolve().parent

# Shared machines are slow at random, and no test here asserts a wall time.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
_BY_DEFAULT = "quick" if os.environ.get("CI") == "true" else "dev"

settings.register_profile("dev", parent=_PATIENT, max_examples=50)
settings.register_profile("quick", parent=_PATIENT, max_examples=12, derandomize=True, database=None)
settings.register_profile("seeds", parent=_PATIENT, max_examples=40)
settings.register_profile("long", parent=_PATIENT, max_examples=20_000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", _BY_DEFAULT)
settings.load_profile(PROFILE)

if PROFILE == "quick":
    # Hypothesis tries constants of all modules imported so far. So examples depended on the order of
    # the tests, and each process of a fresh checkout took three seconds to read all modules.
    providers._get_local_constants = Constants  # noqa: SLF001

# Clients and gateways of tests meet no authority, and this one has signed nothing. To load the hundred of the
# system takes a client longer than its conversation does; processes that a test starts inherit this.
os.environ["SSL_CERT_FILE"] = str(HERE / "fixtures" / "authority.pem")

# Where bytecode is forbidden, each process of a run would compile all tests again, and each process that a
# test starts all of lamina.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

YOUNG_OBJECTS = 10_000
"""New objects after which garbage is looked for; Python's own number is 700."""

MOST_PROCESSES = 8
"""Each collects all tests for itself and starts servers of its own, so that more would not be done sooner."""


def pytest_xdist_auto_num_workers() -> int:
    """One for each processor that this process may use, and one more.

    Tests of gateways, browsers, terminals and databases spend half of their time waiting for another process.
    With one process for each processor, that processor is idle meanwhile.
    """
    return min(_processors() + 1, MOST_PROCESSES)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is imported and collected stays until the end, so no search for garbage has to go through it.

    Searches are seldom, too. Tests that read all of the source spent a quarter of their time in them.
    """
    gc.disable()
    try:
        _import_from_a_place_of_its_own(session.config)
        yield
    finally:
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        gc.enable()


def _import_from_a_place_of_its_own(config: pytest.Config) -> None:
    """Let each process of a whole run begin with other files, and find compiled what the others began with.

    On a fresh checkout all of them would otherwise compile the same files at the same time.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or [Path(argument).name for argument in config.args] != [HERE.name]:
        return
    files = sorted(HERE.rglob("test_*.py"))
    number = int(worker["workerid"].removeprefix("gw"))
    start = len(files) * number // worker["workercount"]
    for file in files[start:] + files[:start]:
        module = ".".join(file.relative_to(HERE.parent).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # pytest imports it again, and says what is wrong
            importlib.import_module(module)


def pytest_runtest_setup() -> None:
    """Let a test of 20,000 examples take as long as it needs. All others have the limit of pyproject.toml."""
    if PROFILE == "long":
        faulthandler.cancel_dump_traceback_later()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    summarize(terminalreporter)
