"""A store by its address, as commands and settings name it.

    chats.db   sqlite:chats.db   sqlite+apsw:chats.db   files:folder   postgresql://host/db   memory:

`sqlite:` takes the library with the newer SQLite; `sqlite+apsw:` and `sqlite+sqlite3:` name one. With a key
the store is sealed. Opening a sealed store without its key is KeyNeeded, with another one WrongKey. What a
kind of store needs is imported only when one is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from anyio import to_thread

from lamina.errors import BadInput, KeyNeeded
from lamina.settings import Settings
from lamina.stores.port import HEADER, Store

if TYPE_CHECKING:
    from lamina.stores.sqlite.links import Driver

KEY_VARIABLE = "LAMINA_KEY"
"""Has the key of a sealed store, in the environment."""

Opening = Callable[[str], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def open_store(address: str, *, key: Any = None, create: bool = True) -> AsyncIterator[Store]:
    """The store, until the context ends; sealed where a `key` is given.

    `create` allows a new file or folder to be made, and a first key to be set.
    """
    kind, opening, rest = _kind(address)
    if not create and kind in ("sqlite", "files") and not await to_thread.run_sync(_there, rest):
        raise BadInput("there is no store", place=address, hint="check the address, or begin a session there")
    async with opening(rest) as store:
        if key is None:
            await check_plain(store)
            yield store
        else:
            yield await _sealed(store, key, create=create)


@asynccontextmanager
async def open_default_store(
    settings: Settings, *, key: Any = None, create: bool = True
) -> AsyncIterator[Store]:
    """The user's own store, whose folder is made for its owner alone."""
    address = settings.store_address()
    kind, _, rest = _kind(address)
    if create and kind == "sqlite":
        await to_thread.run_sync(_make_private_folder, rest)
    async with open_store(address, key=key, create=create) as store:
        yield store


async def key_for(given: Any, settings: Settings, environment: Mapping[str, str]) -> Any:
    """The key that a store is opened with; None for a plain one.

    `given` is a key, a passphrase, a ring of these, or the `Path` of a file with a key. Without it the key is
    the one in the environment (LAMINA_KEY), else the one in the file that the settings name.
    """
    if given is None and environment.get(KEY_VARIABLE):
        return _sealing().raw(environment[KEY_VARIABLE], place=f"environment variable {KEY_VARIABLE}")
    if given is None and settings.key_file:
        given = Path(settings.key_file)
    if given is None:
        return None
    if isinstance(given, PathLike):
        return await to_thread.run_sync(_sealing().from_file, fspath(given))
    if isinstance(given, str | bytes) or not (_is_key(given) or _is_ring(given)):
        hint = "give a Key (generate(), raw(...), from_file(...)), a Passphrase, or the Path of a key file"
        raise BadInput(f"{type(given).__name__} is no key", place="key", hint=hint)
    return given


def _is_key(given: Any) -> bool:
    sealing = _sealing()
    return isinstance(given, sealing.Key | sealing.Passphrase)


def _is_ring(given: Any) -> bool:
    return isinstance(given, Sequence) and bool(given) and all(_is_key(one) for one in given)


def _sealing() -> Any:
    """Encryption, or what to install to have it."""
    try:
        return import_module("lamina.stores.sealed")
    except ImportError as error:
        raise BadInput(str(error), place="key", hint="pip install 'lamina[encryption]'") from None


async def check_plain(store: Store) -> None:
    """Raises KeyNeeded if a store is sealed."""
    head = (await store.read(HEADER, last=0)).head
    if head.count or head.state:
        raise KeyNeeded


async def _sealed(store: Store, key: Any, *, create: bool) -> Store:
    """The store behind its key, which is tried now: a wrong one is told before anything is asked for."""
    sealed = _sealing().Sealed(store, key, create=create)
    await sealed.vault.unlock()
    return cast("Store", sealed)


def _make_private_folder(path: str) -> None:
    """The folder that a file will be in."""
    Path(path).expanduser().parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def _there(path: str) -> bool:
    return Path(path).expanduser().exists()


def _kind(address: str) -> tuple[str, Opening, str]:
    """The kind of a store, what opens it, and what the address says besides."""
    kind, colon, rest = address.partition(":")
    if kind in ("postgres", "postgresql") and rest.startswith("//"):
        return "postgresql", _postgres, address
    if colon and kind in _KINDS:
        return kind.partition("+")[0], _KINDS[kind], rest
    if colon and len(kind) > 1 and "/" not in kind and "\\" not in kind:  # one letter is a drive
        known = ", ".join([*_KINDS, "postgresql"])
        raise BadInput(f"no kind of store is called {kind!r}", place=address, hint=f"use {known}, or a path")
    if not address:
        raise BadInput("the address is empty", place="store", hint="give a path, or sqlite:PATH")
    return "sqlite", _KINDS["sqlite"], address


def _sqlite(path: str, *, driver: Driver | None = None) -> AbstractAsyncContextManager[Store]:
    from lamina.stores.sqlite import open_sqlite  # noqa: PLC0415

    return open_sqlite(Path(path).expanduser(), driver=driver)


def _files(folder: str) -> AbstractAsyncContextManager[Store]:
    from lamina.stores.files import open_files  # noqa: PLC0415

    return open_files(Path(folder).expanduser())


def _postgres(url: str) -> AbstractAsyncContextManager[Store]:
    try:
        from lamina.stores.postgres import open_postgres  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BadInput(str(error), place="store", hint="pip install 'lamina[postgres]'") from None
    return open_postgres(url)


@asynccontextmanager
async def _memory(_: str) -> AsyncIterator[Store]:
    from lamina.stores.memory import MemoryStore  # noqa: PLC0415

    yield MemoryStore()


_KINDS: dict[str, Opening] = {
    "sqlite": _sqlite,
    "sqlite+apsw": partial(_sqlite, driver="apsw"),
    "sqlite+sqlite3": partial(_sqlite, driver="sqlite3"),
    "files": _files,
    "memory": _memory,
}
