"""A store by its address, as commands and settings name it.

    chats.db   sqlite:chats.db   files:folder   postgresql://host/db   memory:

With a key it is sealed. What a kind of store needs is imported only when one is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import to_thread

from lamina.errors import BadInput
from lamina.stores.port import Store

Opening = Callable[[str], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def open_store(address: str, *, key: Any = None, create: bool = True) -> AsyncIterator[Store]:
    """The store, until the context ends; sealed where a `key` is given.

    `create` allows a new file or folder to be made, and a first key to be set.
    """
    opening, rest = _kind(address)
    if not create and opening in (_sqlite, _files) and not await to_thread.run_sync(_there, rest):
        raise BadInput("there is no store", place=address, hint="check the address, or begin a session there")
    async with opening(rest) as store:
        if key is None:
            yield store
            return
        from lamina.stores.sealed import Sealed  # noqa: PLC0415 - an extra

        yield Sealed(store, key, create=create)


def _there(path: str) -> bool:
    return Path(path).expanduser().exists()


def _kind(address: str) -> tuple[Opening, str]:
    kind, colon, rest = address.partition(":")
    if kind in ("postgres", "postgresql") and rest.startswith("//"):
        return _postgres, address
    if colon and kind in _KINDS:
        return _KINDS[kind], rest
    if colon and len(kind) > 1 and "/" not in kind and "\\" not in kind:  # one letter is a drive
        known = ", ".join([*_KINDS, "postgresql"])
        raise BadInput(f"no kind of store is called {kind!r}", place=address, hint=f"use {known}, or a path")
    if not address:
        raise BadInput("the address is empty", place="store", hint="give a path, or sqlite:PATH")
    return _sqlite, address


def _sqlite(path: str) -> AbstractAsyncContextManager[Store]:
    from lamina.stores.sqlite import open_sqlite  # noqa: PLC0415

    return open_sqlite(Path(path).expanduser())


def _files(folder: str) -> AbstractAsyncContextManager[Store]:
    from lamina.stores.files import open_files  # noqa: PLC0415

    return open_files(Path(folder).expanduser())


def _postgres(url: str) -> AbstractAsyncContextManager[Store]:
    from lamina.stores.postgres import open_postgres  # noqa: PLC0415 - an extra

    return open_postgres(url)


@asynccontextmanager
async def _memory(_: str) -> AsyncIterator[Store]:
    from lamina.stores.memory import MemoryStore  # noqa: PLC0415

    yield MemoryStore()


_KINDS: dict[str, Opening] = {"sqlite": _sqlite, "files": _files, "memory": _memory}
