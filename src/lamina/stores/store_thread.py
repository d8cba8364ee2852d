"""A store in a thread of its own, for callers that have no event loop, or one of theirs.

    store = StoreThread("chats.db")
    store.run(read_something, "id")          # waits
    await store.arun(read_something, "id")   # does not block the caller's event loop

The functions that run there are async and get the open store first. The store is closed when the program
ends; `close` and `stop` close it earlier. What a function has written before is in the store either way.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from threading import Lock, Thread
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakSet

from lamina.errors import BadInput
from lamina.stores.address import open_store
from lamina.stores.port import Store

P = ParamSpec("P")
T = TypeVar("T")

StoreFunction = Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]

StoreAddress = str | Callable[[], AbstractAsyncContextManager[Store]]
"""Where a store is, as `open_store` has it, or a function that opens one."""

_AT_THE_END = 10
"""Seconds that a program waits at its end until a store is closed."""


class StoreThread:
    """Opens the store at this address, as `chats.db` or `postgresql://host/db`; with a `key` it is sealed.

    In place of an address you may give a function that opens a store, as `lamina.stores.sqlite.open_sqlite`
    with its arguments bound does.
    """

    def __init__(self, address: StoreAddress, *, key: Any = None) -> None:
        self._open: Callable[[], AbstractAsyncContextManager[Store]]
        self._open = partial(open_store, address, key=key) if isinstance(address, str) else address
        self._starting = Lock()
        self._loop = _StoreLoop(self._open)
        _threads.add(self)

    def run(self, function: StoreFunction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function over the store, and wait for what it returns."""
        return self._find_loop().submit(function, *args, **kwargs).result()

    async def arun(self, function: StoreFunction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function over the store without blocking this event loop."""
        return await asyncio.wrap_future(self._find_loop().submit(function, *args, **kwargs))

    def close(self, *, seconds: float | None = None) -> None:
        """Close the store, and wait so long until it is closed. A second call does nothing."""
        self.stop()
        self._loop.thread.join(seconds)

    def stop(self) -> None:
        """Begin to close the store. Any thread may do so, also while it collects garbage."""
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find_loop(self) -> _StoreLoop:
        """The loop of this process. A forked one has no thread of its parent, and opens the store again."""
        if self._loop.process != os.getpid():
            with self._starting:
                if self._loop.process != os.getpid():
                    self._loop = _StoreLoop(self._open)
        return self._loop


class _StoreLoop:
    """One open store, with the thread and the event loop that it lives in."""

    def __init__(self, open_it: Callable[[], AbstractAsyncContextManager[Store]]) -> None:
        self.process = os.getpid()
        self._closing = asyncio.Event()
        self._submitting = Lock()
        self._is_closed = False
        self._running: set[Future[Any]] = set()
        self._opened: Future[Store] = Future()
        hold = partial(asyncio.run, self._hold(open_it))
        self.thread = Thread(target=hold, name="lamina store", daemon=True)
        self.thread.start()
        self._store = self._opened.result()

    def submit(self, function: StoreFunction[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._submitting:
            if self._is_closed:
                raise _say_closed()
            future = asyncio.run_coroutine_threadsafe(function(self._store, *args, **kwargs), self._loop)
            self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def stop(self) -> None:
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._closing.set)

    async def _hold(self, open_it: Callable[[], AbstractAsyncContextManager[Store]]) -> None:
        """Hold the store open until it is to be closed. One task enters and leaves it, as anyio requires."""
        self._loop = asyncio.get_running_loop()
        try:
            async with open_it() as store:
                self._opened.set_result(store)
                await self._closing.wait()
                self._refuse_more()
                running = [asyncio.wrap_future(future) for future in list(self._running)]
                await asyncio.gather(*running, return_exceptions=True)
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
                return
            self._refuse_more()
            logging.getLogger("lamina").exception("a store broke, and is closed")
            for future in list(self._running):
                future.set_exception(_say_closed())

    def _refuse_more(self) -> None:
        with self._submitting:
            self._is_closed = True


def _say_closed() -> BadInput:
    return BadInput("the store is closed", place="store", hint="open it again")


_threads: WeakSet[StoreThread] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close every store when the program ends: native code in a thread that outlives it may crash."""
    for thread in list(_threads):
        thread.close(seconds=_AT_THE_END)
