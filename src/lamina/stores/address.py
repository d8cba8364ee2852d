"""A store by its address, as commands and settings name it.

    chats.db   sqlite:chats.db   files:folder   postgresql://host/db   memory:

With a key the store is sealed. Opening a sealed store without its key raises KeyNeeded, with another key
WrongKey. What a kind of store needs is imported only when one is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, cast

from anyio import to_thread

from lamina.errors import BadInput, KeyNeeded, StoreError
from lamina.settings import Settings
from lamina.stores.port import HEADER, Store

KEY_VARIABLE = "LAMINA_KEY"
"""The environment variable that holds the key of a sealed store."""

StoreOpener = Callable[[str], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def open_store(address: str, *, key: Any = None, create: bool = True) -> AsyncIterator[Store]:
    """Open the store until the context ends; with a `key` it is sealed.

    `create` allows a new file or folder to be made, and a first key to be set.
    """
    parsed = _parse_address(address)
    if not create and not await to_thread.run_sync(parsed.may_exist):
        hint = "check the address; the first conversation makes it, for instance in lamina chat"
        raise BadInput("there is no store", place=address, hint=hint)
    # SQLite itself would only say that it is unable to open the file.
    if await to_thread.run_sync(parsed.names_folder_as_file):
        hint = f"name a file in it, or write files:{parsed.argument} to keep conversations as files"
        raise BadInput("it is a folder", place=address, hint=hint)
    async with parsed.open(parsed.argument) as store:
        if key is None:
            await check_plain(store)
            yield store
        else:
            sealed = import_sealed().Sealed(store, key, create=create)
            await sealed.unlock()  # now, so that a wrong key is reported when the store is opened
            yield cast("Store", sealed)


def may_be_there(address: str) -> bool:
    """Whether a store may be opened at this address without making one. A server is not asked."""
    return _parse_address(address).may_exist()


@asynccontextmanager
async def open_default_store(
    settings: Settings, *, key: Any = None, create: bool = True
) -> AsyncIterator[Store]:
    """Open the user's own store. A new folder for it can only be read by its owner."""
    address = settings.store_address()
    parsed = _parse_address(address)
    if create and parsed.kind == "sqlite":
        await to_thread.run_sync(_make_private_folder, parsed.argument)
    async with open_store(address, key=key, create=create) as store:
        yield store


def open_chosen_store(
    address: str | None, settings: Settings, *, key: Any = None, create: bool = True
) -> AbstractAsyncContextManager[Store]:
    """Open the store at an address; without an address, the user's own."""
    if address:
        return open_store(address, key=key, create=create)
    return open_default_store(settings, key=key, create=create)


async def resolve_key(key: Any, settings: Settings, environment: Mapping[str, str]) -> Any:
    """The key that a store is opened with; None for a plain one.

    `key` is a key, a passphrase, or the `Path` of a file with a key. Without it the key is the one in the
    environment (LAMINA_KEY), else the one in the file that the settings name.
    """
    if key is None:
        if environment.get(KEY_VARIABLE):
            place = f"environment variable {KEY_VARIABLE}"
            return import_sealed().raw(environment[KEY_VARIABLE], place=place)
        if not settings.key_file:
            return None
        key = Path(settings.key_file)
    if isinstance(key, PathLike):
        return await to_thread.run_sync(import_sealed().from_file, fspath(key))
    _check_key(key)
    return key


def _check_key(key: Any) -> None:
    """Raise BadInput unless this is a key or a passphrase."""
    sealed = import_sealed()
    if not isinstance(key, sealed.Key | sealed.Passphrase):
        hint = "give a Key (generate(), raw(...), from_file(...)), a Passphrase, or the Path of a key file"
        raise BadInput(f"{type(key).__name__} is not a key", place="key", hint=hint)


def import_sealed() -> Any:
    """Import encryption; if that is not installed, the error says what to install."""
    try:
        return import_module("lamina.stores.sealed")
    except ImportError:
        hint = "install it: pip install 'lamina-context[encryption]'"
        raise BadInput("a key needs the package cryptography", place="key", hint=hint) from None


async def check_plain(store: Store) -> None:
    """Raise KeyNeeded if a store is sealed."""
    page = await store.read(HEADER, last=0)
    if not page.head.is_empty:
        raise KeyNeeded


def _make_private_folder(path: str) -> None:
    """Make the folder that a new file will be in."""
    folder = Path(path).expanduser().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = f"the folder {str(folder)!r} cannot be made: {error.strerror}"
        raise StoreError(problem, hint="check its permissions, or name another store") from error


class _ParsedAddress(NamedTuple):
    """The kind of a store, the function that opens it, and the argument of that: a path, or a URL."""

    kind: str
    open: StoreOpener
    argument: str

    def may_exist(self) -> bool:
        """Whether a store may be there. A server is not asked."""
        if self.kind not in ("sqlite", "files"):
            return True
        return Path(self.argument).expanduser().exists()

    def names_folder_as_file(self) -> bool:
        """Whether this is the address of a file, and a folder is there."""
        return self.kind == "sqlite" and Path(self.argument).expanduser().is_dir()


def _parse_address(address: str) -> _ParsedAddress:
    """Read an address.

    Whatever has no kind before a colon is the path of a SQLite file. So is a path on a Windows drive.
    """
    if not address:
        raise BadInput("the address is empty", place="store", hint="give a path, or sqlite:PATH")
    kind, colon, rest = address.partition(":")
    is_drive = len(kind) <= 1  # `C:\chats.db`
    if not colon or is_drive or not {"/", "\\"}.isdisjoint(kind):
        return _ParsedAddress("sqlite", _KINDS["sqlite"], address)
    if kind in ("postgres", "postgresql") and rest.startswith("//"):
        return _ParsedAddress("postgresql", _open_postgres, address)
    if kind in _KINDS:
        return _ParsedAddress(kind, _KINDS[kind], rest)
    kinds = ", ".join([*_KINDS, "postgresql"])
    raise BadInput(f"no kind of store is called {kind!r}", place=address, hint=f"use {kinds}, or a path")


def _open_sqlite(path: str) -> AbstractAsyncContextManager[Store]:
    from lamina.stores.sqlite import open_sqlite  # noqa: PLC0415

    return open_sqlite(Path(path).expanduser())


def _open_files(folder: str) -> AbstractAsyncContextManager[Store]:
    from lamina.stores.files import open_files  # noqa: PLC0415

    return open_files(Path(folder).expanduser())


def _open_postgres(url: str) -> AbstractAsyncContextManager[Store]:
    try:
        from lamina.stores.postgres import open_postgres  # noqa: PLC0415 - an extra
    except ImportError:
        hint = "pip install 'lamina-context[postgres]'"
        raise BadInput("the PostgreSQL store needs psycopg", place="store", hint=hint) from None
    return open_postgres(url)


@asynccontextmanager
async def _open_memory(_: str) -> AsyncIterator[Store]:
    from lamina.stores.memory import MemoryStore  # noqa: PLC0415

    yield MemoryStore()


_KINDS: dict[str, StoreOpener] = {
    "sqlite": _open_sqlite,
    "files": _open_files,
    "memory": _open_memory,
}
