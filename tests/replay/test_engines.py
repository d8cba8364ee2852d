from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lamina.errors import BadInput
from lamina.replay import replay
from lamina.replay.engines import Engine, open_engine, run_in_order
from tests.replay.doomed import double_unless_doomed
from tests.replay.talks import session, trace

TRACES = [trace(*session(steps, words=40), name=f"t{steps}") for steps in (2, 9, 5)]


def test_an_executor_of_ones_own_gives_the_same_account() -> None:
    with ThreadPoolExecutor(3) as executor:
        account = replay(
            TRACES, policies=["lamina"], windows=[600], count_as="gpt-5.4", engine=executor, jobs=3
        )
    alone = replay(TRACES, policies=["lamina"], windows=[600], count_as="gpt-5.4")
    assert [msgspec.structs.replace(each, seconds=0.0) for each in account.outcomes] == [
        msgspec.structs.replace(each, seconds=0.0) for each in alone.outcomes
    ]
    assert account.reported == alone.reported


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("name", ["local", "dask", "ray"])
def test_a_lost_worker_costs_its_share_only_and_a_deadly_item_is_given_up(name: str, tmp_path: Path) -> None:
    if name != "local":
        pytest.importorskip(name, reason="make scale installs it")
    once = tmp_path / "once"
    once.touch()
    items = [(number, "") for number in range(10)]
    items[2] = (2, str(once))
    items[6] = (6, "always")
    with open_engine(name, jobs=2) as engine:
        results = list(run_in_order(engine, double_unless_doomed, items, lambda _: -1))
    assert results == [0, 2, 4, 6, 8, 10, -1, 14, 16, 18]


class _GivingUp(Executor):
    """An engine that gives up some calls after its own attempts, as Dask and Ray do.

    It gives up 1 every time, and 5 only the first time.
    """

    def __init__(self) -> None:
        self.submitted: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted.append(args[0])
        is_first_five = args[0] == 5 and self.submitted.count(5) == 1
        if args[0] == 1 or is_first_five:
            future.set_exception(ConnectionResetError())
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_what_an_engine_gave_up_is_one_result_and_only_few_items_wait() -> None:
    taken = []

    def read_items() -> Iterator[int]:
        for number in range(9):
            taken.append(number)
            yield number

    engine = Engine(_GivingUp(), jobs=1, lost_errors=(ConnectionResetError,))
    results = run_in_order(engine, lambda item: item * 10, read_items(), lambda item: -item)
    assert next(results) == 0
    assert taken == [0, 1, 2, 3]
    assert list(results) == [-1, *range(20, 90, 10)]


class _Deadly(Executor):
    """An engine all of whose workers die."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        del fn, args, kwargs
        future: Future[Any] = Future()
        future.set_exception(ConnectionResetError())
        return future


def test_a_replay_ends_if_workers_die_with_one_session_after_another() -> None:
    engine = Engine(_Deadly(), jobs=1, lost_errors=(ConnectionResetError,))
    traces = [trace(*session(1), name=f"t{number}") for number in range(9)]
    with pytest.raises(BadInput, match=r"^t4:1: the workers died with each of 5 sessions"):
        replay(traces, policies=["none"], windows=[600], count_as="gpt-5.4", engine=engine)


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_an_engine_that_is_not_installed_says_how_to_install_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput, match=rf"pip install 'lamina-context\[{name}\]'"), open_engine(name, jobs=1):
        pass


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_cluster_that_does_not_answer_is_bad_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise errors[name]

    errors = {"dask": TimeoutError("no answer"), "ray": Exception("no answer")}

    configured = SimpleNamespace(set=lambda _: contextlib.nullcontext())
    modules = {
        "dask": SimpleNamespace(config=configured),
        "distributed": SimpleNamespace(Client=fail),
        "ray": SimpleNamespace(init=fail),
    }
    for module_name, module in modules.items():
        monkeypatch.setitem(sys.modules, module_name, module)
    expected = r"^tcp://10\.0\.0\.5:1: the cluster does not answer: no answer"
    with pytest.raises(BadInput, match=expected), open_engine(f"{name}:tcp://10.0.0.5:1", jobs=1):
        pass


@pytest.mark.parametrize("name", ["spark", "local:tcp://127.0.0.1:1"])
def test_an_engine_that_cannot_be_had_says_why(name: str) -> None:
    with pytest.raises(BadInput, match="dask:tcp://HOST:PORT"), open_engine(name, jobs=1):
        pass


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_cluster_gives_the_same_outcomes(name: str) -> None:
    pytest.importorskip(name, reason="make scale installs it")
    with open_engine(name, jobs=2) as engine:
        account = replay(TRACES, policies=["lamina"], windows=[600], count_as="gpt-5.4", engine=engine)
    alone = replay(TRACES, policies=["lamina"], windows=[600], count_as="gpt-5.4")
    assert [each.equivalents for each in account.outcomes] == [each.equivalents for each in alone.outcomes]


def test_ctrl_c_ends_a_worker_without_a_word() -> None:
    """A terminal sends it to all processes: a worker's traceback would stand in the table."""
    with open_engine("local", jobs=1) as engine:
        assert engine.executor.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is not signal.SIG_DFL
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


DRIVER = """
import sys
from lamina.replay.engines import open_engine
from tests.replay.doomed import hold_connection

if __name__ == "__main__":
    with open_engine("local", jobs=2) as engine:
        for call in [engine.executor.submit(hold_connection, int(sys.argv[1])) for _ in range(2)]:
            call.result()
"""

PATIENCE = 120.0
"""Seconds after which a worker counts as one that stays. It ends at once where a processor is free."""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """A driver that is killed cannot stop its workers, and they must not wait for it for ever."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with contextlib.ExitStack() as stack:
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
