"""What commands about kept conversations share: which store, with which key, and how it is opened."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lamina.errors import StoreError
from lamina.session import Session
from lamina.settings import load_settings
from lamina.stores.address import open_store
from lamina.stores.port import Store, Where

KEY = "LAMINA_KEY"


def add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="STORE", help="a path, files:FOLDER or postgresql://...; by default, yours"
    )
    parser.add_argument("--workspace", metavar="NAME", help="the workspace; by default, that of the settings")
    parser.add_argument(
        "--key-file", metavar="FILE", help=f"the key of a sealed store; by default, the one in ${KEY}, if any"
    )  # fmt: skip


@asynccontextmanager
async def stored(arguments: argparse.Namespace, *, create: bool = False) -> AsyncIterator[tuple[Store, str]]:
    """The store that the arguments name, and the workspace."""
    settings = load_settings()
    workspace = settings.workspace if arguments.workspace is None else arguments.workspace
    address = arguments.store or str(settings.store_path())
    async with open_store(address, key=key_of(arguments.key_file), create=create) as store:
        yield store, workspace


def key_of(path: str | None) -> Any:
    """The key in a file, else the one in the environment; None without either."""
    if not path and not os.environ.get(KEY):
        return None
    from lamina.stores.sealed import from_env, from_file  # noqa: PLC0415 - an extra

    return from_file(path) if path else from_env(KEY)


@asynccontextmanager
async def existing(store: Store, workspace: str, name: str) -> AsyncIterator[Session]:
    """A session of a conversation that must be there already."""
    if not (await store.read(Where(workspace, name), last=0)).head.count:
        raise missing(name)
    async with Session.open(store, name, workspace=workspace) as session:
        yield session


def missing(name: str) -> StoreError:
    return StoreError("there is none of this name", conversation=name, hint="see lamina sessions list")
