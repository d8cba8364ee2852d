"""What commands about kept conversations share: which store, with which key, and how it is opened."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lamina.errors import BadInput, StoreError
from lamina.sessions import Session
from lamina.settings import load_settings
from lamina.stores.address import open_chosen_store
from lamina.stores.port import Store, Where

KEY = "LAMINA_KEY"


def add_store(parser: argparse.ArgumentParser, *, alone: bool = False) -> None:
    """Adds the options that name a store. `alone`: --store without a value is the user's own store."""
    parser.add_argument(
        "--store",
        metavar="STORE",
        nargs="?" if alone else None,
        const="" if alone else None,
        help="a path, files:FOLDER or postgresql://...; by default, yours",
    )
    parser.add_argument("--workspace", metavar="NAME", help="the workspace; by default, that of the settings")
    parser.add_argument(
        "--key-file", metavar="FILE", help=f"the key of a sealed store; by default, the one in ${KEY}, if any"
    )


@asynccontextmanager
async def open_named_store(
    arguments: argparse.Namespace, *, create: bool = False
) -> AsyncIterator[tuple[Store, str]]:
    """The store that the arguments name, and the workspace."""
    settings = load_settings()
    workspace = settings.workspace if arguments.workspace is None else arguments.workspace
    key = find_key(arguments.key_file)
    async with open_chosen_store(arguments.store, settings, key=key, create=create) as store:
        yield store, workspace


def find_key(path: str | None) -> Any:
    """The key in a file, else the one in the environment or that the settings name; None without any."""
    if path:
        return _sealing().from_file(path)
    if os.environ.get(KEY):
        return _sealing().from_env(KEY)
    path_in_settings = load_settings().key_file
    if not path_in_settings:
        return None
    return _sealing().from_file(path_in_settings)


def hide_password(address: str) -> str:
    """An address without the user and the password that may be in it. Any other text is returned as it is."""
    if "://" not in address:
        return address
    try:
        parts = urlsplit(address)
    except ValueError:
        return address.partition("://")[0] + "://"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def read_or_make_key(path: str) -> Any:
    """The key in a file, which is made if it is not there."""
    sealing = _sealing()
    if Path(path).expanduser().exists():
        return sealing.from_file(path)
    return sealing.init_file(path)


def _sealing() -> Any:
    """The module for encryption; the error names the package that it needs."""
    try:
        return importlib.import_module("lamina.stores.sealed")
    except ImportError:
        hint = "install it: pip install 'lamina[encryption]'"
        raise BadInput("a key needs the package cryptography", place="key", hint=hint) from None


@asynccontextmanager
async def open_existing(store: Store, workspace: str, name: str) -> AsyncIterator[Session]:
    """A session of a conversation that must be there already."""
    if not (await store.read(Where(workspace, name), last=0)).head.count:
        raise no_such_conversation(name)
    async with Session.open(store, name, workspace=workspace) as session:
        yield session


def no_such_conversation(name: str) -> StoreError:
    return StoreError("there is none of this name", conversation=name, hint="see lamina sessions list")
