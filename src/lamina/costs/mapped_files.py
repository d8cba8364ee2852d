"""Maps a pure function over files: by processes of this machine, or on a Dask or Ray cluster.

Results come in the order of the files, whoever read which. A worker that dies costs its own file only: Dask
and Ray read it again themselves, and a pool of processes is made anew. A file that kills its worker again is
given up. Workers of a cluster read the files themselves, so they must have them under the same path or URL.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from lamina.errors import BadInput

ENGINES = ("local", "dask", "ray")

File = TypeVar("File")
Result = TypeVar("Result")
GivenUp = Callable[[File], Result]


def map_files(
    function: Callable[[File], Result],
    files: Sequence[File],
    give_up: GivenUp[File, Result],
    *,
    engine: str = "local",
    address: str = "",
    jobs: int = 1,
) -> Iterator[Result]:
    """The result for each file. `give_up` makes that of a file with which every worker died."""
    if engine == "dask":
        return _map_on_dask(function, files, give_up, address or None)
    if engine == "ray":
        return _map_on_ray(function, files, give_up, address or None)
    if jobs == 1 or len(files) < 2:
        return map(function, files)
    return _map_in_processes(function, files, give_up, jobs)


def _map_in_processes(
    function: Callable[[File], Result], files: Sequence[File], give_up: GivenUp[File, Result], jobs: int
) -> Iterator[Result]:
    done = 0
    attempts = 0
    while done < len(files):
        # After a death the file that was waited for is read alone: if its worker dies again, it was the file.
        ahead = files[done : done + 1] if attempts else files[done:]
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_prepare_worker)
        with pool:
            try:
                for future in [pool.submit(function, file) for file in ahead]:
                    yield future.result()
                    done += 1
                    attempts = 0
            except BrokenExecutor:
                attempts += 1
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if attempts > 1:
            yield give_up(files[done])
            done += 1
            attempts = 0


def _prepare_worker() -> None:
    """Ctrl-C is for the process that waits; a worker ends with it, also if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _map_on_dask(
    function: Callable[[File], Result],
    files: Sequence[File],
    give_up: GivenUp[File, Result],
    address: str | None,
) -> Iterator[Result]:
    distributed = _import_engine("distributed", "dask")
    with distributed.Client(address) as client:
        for file, future in zip(files, client.map(function, files, pure=False), strict=True):
            try:
                yield future.result()
            except distributed.KilledWorker:
                yield give_up(file)


def _map_on_ray(
    function: Callable[[File], Result],
    files: Sequence[File],
    give_up: GivenUp[File, Result],
    address: str | None,
) -> Iterator[Result]:
    ray = _import_engine("ray", "ray")
    ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    lost = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError)
    task = ray.remote(function)
    for file, reference in zip(files, [task.remote(file) for file in files], strict=True):
        try:
            yield ray.get(reference)
        except lost:
            yield give_up(file)


def _import_engine(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        hint = f"install it: pip install 'lamina-context[{extra}]'"
        raise BadInput(f"the package {module} is missing", place="--engine", hint=hint) from None
