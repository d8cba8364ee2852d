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
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from threading import Thread
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
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._opened: Future[Store] = Future()
        self._thread = Thread(target=self._run_loop, name="lamina store", daemon=True)
        self._thread.start()
        _threads.add(self)
        if isinstance(address, str):
            self._submit(self._hold(open_store(address, key=key)))
        else:
            self._submit(self._hold(address()))
        self._store = self._opened.result()

    def run(self, function: StoreFunction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function over the store, and wait for what it returns."""
        return self._submit(function(self._store, *args, **kwargs)).result()

    async def arun(self, function: StoreFunction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function over the store without blocking this event loop."""
        return await asyncio.wrap_future(self._submit(function(self._store, *args, **kwargs)))

    def close(self, *, seconds: float | None = None) -> None:
        """Close the store, and wait so long until it is closed. A second call does nothing."""
        self.stop()
        self._thread.join(seconds)

    def stop(self) -> None:
        """Begin to close the store. Any thread may do so, also while it collects garbage."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._closing.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if not self._thread.is_alive():
            coroutine.close()
            raise BadInput("the store is closed", place="store", hint="open it again")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run_loop(self) -> None:
        self._loop.run_until_complete(self._closing.wait())
        self._loop.run_until_complete(self._finish_tasks())
        self._loop.close()

    async def _finish_tasks(self) -> None:
        """Let running functions end before the loop does; the one that holds the store ends last."""
        waiting: list[Awaitable[Any]] = [
            task for task in asyncio.all_tasks() if task is not asyncio.current_task()
        ]
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _hold(self, opened: AbstractAsyncContextManager[Store]) -> None:
        """Hold the store open until the thread closes. One task enters and leaves it, as anyio requires."""
        try:
            async with opened as store:
                self._opened.set_result(store)
                await self._closing.wait()
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)
            self._closing.set()


_threads: WeakSet[StoreThread] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close every store when the program ends: native code in a thread that outlives it may crash."""
    for thread in list(_threads):
        thread.close(seconds=_AT_THE_END)
