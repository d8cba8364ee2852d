"""Opens the store that a command names, with its key: what all commands about conversations share."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio

from lamina.cli.output import tell
from lamina.conversations.listing import resolve_name
from lamina.errors import KeyNeeded, StoreError
from lamina.sessions import Session
from lamina.settings import load_settings
from lamina.stores.address import KEY_VARIABLE, import_sealed, open_chosen_store, resolve_key
from lamina.stores.port import Store, Where

GATEWAY_WORKSPACE = "default"
"""The workspace of a gateway's conversations, if nobody named another."""

_Value = TypeVar("_Value")


def add_store(parser: argparse.ArgumentParser, *, alone: bool = False) -> None:
    """Add the options that name a store. `alone`: --store without a value is the user's own store."""
    parser.add_argument(
        "--store",
        metavar="STORE",
        nargs="?" if alone else None,
        const="" if alone else None,
        help="a path, files:FOLDER or postgresql://...; by default, yours",
    )
    parser.add_argument("--workspace", metavar="NAME", help="the workspace; by default, that of the settings")
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help=f"the key of a sealed store; by default, the one in ${KEY_VARIABLE}, if any",
    )


@asynccontextmanager
async def open_named_store(
    arguments: argparse.Namespace, *, create: bool = False
) -> AsyncIterator[tuple[Store, str]]:
    """The store that the arguments name, and the workspace."""
    settings = load_settings()
    workspace = settings.workspace if arguments.workspace is None else arguments.workspace
    key = await find_key(arguments.key_file)
    try:
        async with open_chosen_store(arguments.store, settings, key=key, create=create) as store:
            yield store, workspace
    except KeyNeeded as error:
        hint = f"give its key: --key-file FILE, or {KEY_VARIABLE} in the environment"
        raise KeyNeeded(conversation=error.conversation, hint=hint) from error


def ask_store(arguments: argparse.Namespace, operation: Callable[[Store], Awaitable[_Value]], /) -> _Value:
    """Open the store, do something with it, and close it again: others may write to it meanwhile."""

    async def ask() -> _Value:
        async with open_named_store(arguments) as (store, _):
            return await operation(store)

    return anyio.run(ask)


def find_gateway_workspace(arguments: argparse.Namespace) -> str:
    """The workspace in which a gateway keeps the conversations of this user."""
    workspace = load_settings().workspace if arguments.workspace is None else arguments.workspace
    return workspace or GATEWAY_WORKSPACE


async def find_key(path: str | None) -> Any:
    """The key in a file, else the one in the environment or that the settings name; None without any."""
    key_path = None
    if path:
        key_path = Path(path)
    return await resolve_key(key_path, load_settings(), os.environ)


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
    sealing = import_sealed()
    if Path(path).expanduser().exists():
        return sealing.from_file(path)
    return sealing.init_file(path)


@asynccontextmanager
async def open_existing(store: Store, workspace: str, name: str) -> AsyncIterator[Session]:
    """A session of a conversation that must be there already."""
    if not (await store.read(Where(workspace, name), last=0)).head.count:
        raise no_such_conversation(name)
    async with Session.open(store, name, workspace=workspace) as session:
        yield session


async def take_name(store: Store, workspace: str, name: str) -> str:
    """The conversation that is named in full or by its beginning. If that is another name, it is told."""
    full_name = await resolve_name(store, workspace, name)
    if full_name != name:
        tell(f"{name!r} is taken for {full_name!r}")
    return full_name


def no_such_conversation(name: str) -> StoreError:
    return StoreError("there is none of this name", conversation=name, hint="see lamina log")
