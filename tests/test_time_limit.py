"""A test that waits for ever ends, whatever it waits in, says where it stood, and those after it are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

TESTS = """
import asyncio
from threading import Event, Thread
import pytest

@pytest.fixture
def endless():
    Event().wait()

def test_before(): pass

def test_in_a_thread():
    server = Thread(target=Event().wait)
    server.start()
    server.join()

def test_in_a_loop():
    asyncio.run(asyncio.Event().wait())

def test_in_a_fixture(endless): pass

def test_after(): pass
"""


def test_a_test_that_waits_for_ever_ends_and_says_where_it_stood(tmp_path: Path) -> None:
    file = tmp_path / "test_waiting.py"
    file.write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", str(file)]
    command += ["-c", str(ROOT / "pyproject.toml"), "-o", "faulthandler_timeout=1"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 failed, 2 passed" in run.stdout
    for place in ("in_a_thread", "in_a_loop", "in_a_fixture"):
        assert f"::test_{place}'\n" in run.stdout, "xdist names the test"
    for function in ("test_in_a_thread", "test_in_a_loop", "endless"):
        assert f"in {function}\n" in run.stderr, "the stack says where it stood"


@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") == "long", reason="20,000 examples take their time")
def test_every_test_has_a_limit_of_time(pytestconfig: pytest.Config) -> None:
    assert 0 < float(pytestconfig.getini("faulthandler_timeout")) <= 600
