from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from lamina.costs.mapped_files import map_files
from lamina.errors import BadInput
from tests.costs.doomed import double_unless_doomed

ITEMS = [(number, "") for number in range(10)]


def give_up(item: tuple[int, str]) -> int:
    return -item[0]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("engine", ["local", "dask", "ray"])
def test_a_lost_worker_costs_its_file_only_and_a_deadly_file_is_given_up(engine: str, tmp_path: Path) -> None:
    if engine != "local":
        pytest.importorskip(engine, reason="make scale installs it")
    once = tmp_path / "once"
    once.touch()
    items = [*ITEMS]
    items[2] = (2, str(once))
    items[6] = (6, "always")
    results = list(map_files(double_unless_doomed, items, give_up, engine=engine, jobs=2))
    assert results == [0, 2, 4, 6, 8, 10, -6, 14, 16, 18]


def test_one_process_needs_no_pool() -> None:
    assert list(map_files(lambda item: item[0], ITEMS, give_up)) == list(range(10))


@pytest.mark.parametrize(("engine", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_an_engine_that_is_not_installed_says_how_to_install_it(
    engine: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=rf"pip install 'lamina-context\[{engine}\]'"):
        list(map_files(double_unless_doomed, ITEMS, give_up, engine=engine))


DRIVER = """
import sys
from lamina.costs.mapped_files import map_files
from tests.costs.doomed import hold_connection

if __name__ == "__main__":
    list(map_files(hold_connection, [int(sys.argv[1])] * 2, int, jobs=2))
"""

PATIENCE = 120.0
"""Seconds after which a worker counts as one that stays. It ends at once where a processor is free."""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """A driver that is killed cannot stop its workers, and they must not wait for it for ever."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        server.settimeout(PATIENCE)
        command = [sys.executable, str(script), str(server.getsockname()[1])]
        driver = stack.enter_context(subprocess.Popen(command, env=environment))
        workers = {}
        for _ in range(2):
            worker = stack.enter_context(server.accept()[0])
            worker.settimeout(PATIENCE)
            workers[int.from_bytes(worker.recv(8))] = worker
        driver.kill()
        try:
            assert [worker.recv(1) for worker in workers.values()] == [b"", b""]
        except TimeoutError:
            for number in workers:
                os.kill(number, signal.SIGKILL)
            raise
