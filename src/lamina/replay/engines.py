"""Runs a replay on processes of this machine, on a Dask or Ray cluster, or on an executor of your own.

An engine is a `concurrent.futures.Executor` and what is known of it. `run_in_order` gives it one call for
each item and returns the results in the order of the items, so that results do not depend on the engine.
Only a few calls wait at a time, so that memory does not grow with the input.

A worker that dies costs its share only. Dask and Ray call again by themselves. A pool of processes is broken
by the death of one: it is made anew for later calls, and each call that was lost runs in a process of its
own. So only a call that kills its worker every time is given up. Dask would also give up a call that waited
beside such a one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from typing import Any, Generic, NamedTuple, TypeVar

from lamina.errors import BadInput

ENGINES = ("local", "dask", "ray")

WAITING = 3
"""Calls that wait for each worker."""

ATTEMPTS = 2
"""How often a call that was lost with its pool runs again in a process of its own."""

RAY_OBJECT_STORE = 512 << 20
"""Bytes of shared memory that a Ray of our own may use; its default is a third of the machine."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(NamedTuple):
    """An executor that runs `jobs` calls at once.

    `lost_errors` are those by which the executor says that it has given up a call, since its workers died.
    `start` makes the executor anew, with so many workers, if a worker that died breaks it.
    """

    executor: Executor
    jobs: int
    lost_errors: tuple[type[Exception], ...] = ()
    start: Callable[[int], Executor] | None = None


@contextlib.contextmanager
def open_engine(name: str, *, jobs: int) -> Iterator[Engine]:
    """The engine of this name: `local`, `dask`, `ray`, or one with the address of its cluster behind a colon.

    `dask:tcp://10.0.0.5:8786` and `ray:ray://10.0.0.5:10001` are clusters, which have as many jobs as they
    have. Without an address, the workers are processes of this machine.
    """
    kind, _, cluster = name.partition(":")
    match kind:
        case "local" if not cluster:
            opened = _open_processes(jobs)
        case "dask":
            opened = _open_dask(jobs, cluster)
        case "ray":
            opened = _open_ray(jobs, cluster)
        case _:
            hint = (
                f"it is one of {', '.join(ENGINES)}; dask and ray may have an address: dask:tcp://HOST:PORT"
            )
            raise BadInput(repr(name), place="engine", hint=hint)
    with opened as engine:
        yield engine


def run_in_order(
    engine: Engine,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    give_up: Callable[[Item], Result],
) -> Iterator[Result]:
    """The result of each item, in order; `give_up` makes the result of one whose worker dies every time.

    Some items are under way at a time. The next one is taken when the first of them is done.
    """
    calls = _Calls(engine, function, give_up)
    try:
        for item in items:
            calls.submit(item)
            while len(calls.waiting) > WAITING * engine.jobs:
                yield calls.take_first()
        while calls.waiting:
            yield calls.take_first()
    finally:
        calls.close()


class _Calls(Generic[Item, Result]):
    """State: the calls under way, in order, and the executor, which is another one after a worker died."""

    def __init__(
        self, engine: Engine, function: Callable[[Item], Result], give_up: Callable[[Item], Result]
    ) -> None:
        self.waiting: deque[tuple[Item, Future[Result]]] = deque()
        self._engine = engine
        self._function = function
        self._give_up = give_up
        self._executor = engine.executor

    def submit(self, item: Item) -> None:
        try:
            future = self._executor.submit(self._function, item)
        except BrokenExecutor:
            self._executor.shutdown()
            self._executor = self._start(self._engine.jobs)
            future = self._executor.submit(self._function, item)
        self.waiting.append((item, future))

    def take_first(self) -> Result:
        """Wait for the first call, and remove it."""
        item, future = self.waiting[0]
        try:
            result = future.result()
        except self._engine.lost_errors:
            result = self._run_alone(item)
        except BrokenExecutor:
            result = self._run_in_own_process(item)
        self.waiting.popleft()
        return result

    def close(self) -> None:
        for _, future in self.waiting:
            future.cancel()
        if self._executor is not self._engine.executor:
            self._executor.shutdown(cancel_futures=True)

    def _start(self, jobs: int) -> Executor:
        if self._engine.start is None:
            raise _unusable_executor()
        return self._engine.start(jobs)

    def _run_alone(self, item: Item) -> Result:
        """The call once more, when all others have ended: if it is lost again, it was not for a neighbour."""
        wait([future for _, future in self.waiting])
        try:
            return self._executor.submit(self._function, item).result()
        except self._engine.lost_errors:
            return self._give_up(item)

    def _run_in_own_process(self, item: Item) -> Result:
        """The call in a process in which nothing else runs: if the process dies, the call killed it."""
        for _ in range(ATTEMPTS):
            with self._start(1) as own_process:
                try:
                    return own_process.submit(self._function, item).result()
                except BrokenExecutor:
                    continue
        return self._give_up(item)


def _unusable_executor() -> BadInput:
    return BadInput(
        "a worker of this executor died, and the executor takes no more calls",
        place="engine",
        hint="replay again; lamina's own engines survive the death of a worker",
    )


@contextlib.contextmanager
def _open_processes(jobs: int) -> Iterator[Engine]:
    with _start_processes(jobs) as executor:
        yield Engine(executor, jobs, start=_start_processes)


def _start_processes(jobs: int) -> Executor:
    return _QuietProcesses(jobs, mp_context=get_context("spawn"), initializer=_prepare_worker)


class _QuietProcesses(ProcessPoolExecutor):
    """Workers that Ctrl-C ends without a traceback, also while they still import what they need.

    A terminal sends Ctrl-C to every process. A worker is started with the signal held back, which it
    inherits, and takes it only when it is ready to end silently. The first call starts all workers.
    """

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            return super().submit(function, *arguments, **named)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return super().submit(function, *arguments, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_worker() -> None:
    _end_at_ctrl_c()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when the process that started it is gone.

    One that was killed did not stop its workers. They have both ends of the queue, so they would wait in it
    for ever.
    """
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end_at_ctrl_c() -> None:
    """Take Ctrl-C in a worker as any program does that has no handler for it: end at once."""
    if hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


@contextlib.contextmanager
def _open_dask(jobs: int, cluster: str) -> Iterator[Engine]:
    dask = _import_engine("dask", "dask")
    distributed = _import_engine("distributed", "dask")
    with contextlib.ExitStack() as stack:
        # A session of some megabytes is usual here, and no reason for a warning.
        stack.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "128MB"}))
        address: Any = cluster
        if not cluster:
            local_cluster = distributed.LocalCluster(
                n_workers=jobs, threads_per_worker=1, dashboard_address=None
            )
            address = stack.enter_context(local_cluster)
        try:
            client = stack.enter_context(distributed.Client(address))
        except (OSError, ValueError) as error:
            raise _unreachable_cluster(cluster or "dask", error) from error
        if cluster:
            jobs = sum(client.nthreads().values()) or jobs
        executor = stack.enter_context(client.get_executor())
        yield Engine(executor, jobs, lost_errors=(distributed.KilledWorker,))


@contextlib.contextmanager
def _open_ray(jobs: int, cluster: str) -> Iterator[Engine]:
    ray = _import_engine("ray", "ray")
    try:
        if cluster:
            ray.init(address=cluster, log_to_driver=False)
            jobs = int(ray.cluster_resources().get("CPU", jobs))
        else:
            ray.init(
                num_cpus=jobs,
                include_dashboard=False,
                log_to_driver=False,
                object_store_memory=RAY_OBJECT_STORE,
            )
    except Exception as error:  # Ray raises a plain Exception if its processes start too slowly
        raise _unreachable_cluster(cluster or "ray", error) from error
    try:
        errors = ray.exceptions
        yield Engine(
            _RayExecutor(ray),
            jobs,
            lost_errors=(errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError),
        )
    finally:
        ray.shutdown()


class _RayExecutor(Executor):
    """Tasks of Ray as an executor. Ray runs a task again if its worker dies, three times by default."""

    def __init__(self, ray: Any) -> None:
        self._task = ray.remote(_call)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = self._task.remote(fn, args, kwargs).future()
        return future


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _unreachable_cluster(name: str, error: Exception) -> BadInput:
    hint = "check its address, and that it runs; a machine with much else to do may start one too slowly"
    return BadInput(f"the cluster does not answer: {error}", place=name, hint=hint)


def _import_engine(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        hint = f"install it: pip install 'lamina-context[{extra}]'"
        raise BadInput(f"the package {module} is missing", place="engine", hint=hint) from None
