"""`serve`: the gateway from a program, as `lamina serve` runs it from the command line.

lamina.serve(policy=Policy(budget=32_000), settings="gateway.toml")
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import anyio
import msgspec

from lamina.errors import BadInput
from lamina.fitting.policy import Policy, choose_policy
from lamina.gateway.server import run_server
from lamina.relay.config import GatewaySettings, check_settings, load_gateway_settings
from lamina.relay.journal import OFF, JournalFile
from lamina.relay.store_access import GatewayStore


def serve(
    *,
    policy: Policy | None = None,
    settings: GatewaySettings | str | PathLike[str] | None = None,
    host: str | None = None,
    port: int | None = None,
    store: str | PathLike[str] | None = None,
) -> None:
    """Run the gateway until the process is told to stop. It needs the extra `run`.

    `settings` are those of the gateway, or the path of their file; without them there is one upstream for
    each public API. `policy` says how requests are fitted: what it leaves open, the settings say. `host`,
    `port` and `store` replace those of the settings. Settings that cannot be used, and an address or a store
    that cannot be opened, are errors before anything is served.
    """
    path = None
    if isinstance(settings, str | PathLike):
        path = Path(settings).expanduser()
    if not isinstance(settings, GatewaySettings):
        settings = load_gateway_settings(path, os.environ)
    changes: dict[str, object] = {}
    if host is not None:
        changes["host"] = host
    if port is not None:
        changes["port"] = port
    if store is not None:
        changes["store"] = os.fspath(store)
    if policy is not None:
        changes["policy"] = choose_policy(policy, place="serve").over(settings.policy)
    settings = msgspec.structs.replace(settings, **changes)
    check_start(settings, os.environ, path)
    run_server(settings)


def check_start(settings: GatewaySettings, environment: Mapping[str, str], path: Path | None = None) -> None:
    """Raise what is wrong with the settings, their address or their store."""
    check_settings(settings, environment, path)
    if settings.workers > 1:
        _check_is_plain(settings)
    check_address(settings.host, settings.port)
    check_journal(settings)
    anyio.run(check_store, settings)


def _check_is_plain(settings: GatewaySettings) -> None:
    """Raise BadInput if a policy has functions: worker processes get the settings as JSON."""
    for upstream in settings.list_upstreams().values():
        upstream.policy.dump()


def check_address(host: str, port: int) -> None:
    """Raise BadInput if the address cannot be listened on, before anything says that it is served.

    The server would find out by itself, but only after it has started, and in its own words.
    """
    family = socket.AF_INET
    if ":" in host:
        family = socket.AF_INET6
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((host, port))
        except socket.gaierror:
            hint = "give an address of this machine, as 127.0.0.1, or 0.0.0.0 for all of them"
            raise BadInput(f"{host!r} is not an address", place="host", hint=hint) from None
        except OSError as error:
            problem = f"port {port} of {host} cannot be used: {error.strerror}"
            hint = "stop what uses it, or give another --port"
            raise BadInput(problem, place="serve", hint=hint) from None


def check_journal(settings: GatewaySettings) -> None:
    """Raise BadInput if the file that the settings name cannot be written: nobody would notice later."""
    if settings.journal in ("", OFF):
        return
    try:
        JournalFile(Path(settings.journal).expanduser()).check()
    except (OSError, ValueError) as error:  # ValueError: a null byte in its name
        problem = f"{settings.journal!r} cannot be written: {error.args[-1]}"
        raise BadInput(problem, place="journal", hint=f'name a file, or "{OFF}"') from None


async def check_store(settings: GatewaySettings) -> None:
    """Open the store and close it again. Raises what is wrong with its address, its key or its file."""
    store = GatewayStore(settings)
    await store.open()
    await store.close()
