"""Checks the gateway for `lamina doctor`: its journal and its upstreams."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lamina.cli.check_lines import CheckLine, ok, wrong
from lamina.errors import LaminaError

if TYPE_CHECKING:
    from lamina.gateway.config import GatewaySettings

PATIENCE = 5.0


def check_gateway(settings: GatewaySettings, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Where requests go, and where they are noted."""
    from lamina.gateway.journal import find_journal  # noqa: PLC0415 - an extra

    names = ", ".join(f"{name} ({upstream.url})" for name, upstream in settings.upstreams.items())
    yield ok("gateway", f"upstreams: {names}")
    path = None
    try:
        path = find_journal(settings, environment)
    except LaminaError:
        pass  # wrong settings of the user have a line already
    else:
        yield _describe_journal(path)


def _describe_journal(path: Path | None) -> CheckLine:
    """Where the gateway writes a line for each request."""
    if path is None:
        step = 'set `journal = "FILE"` in the settings to follow requests with lamina tail'
        return ok("journal", "no file of requests is written", next_step=step)
    return ok("journal", f"one line a request in {path}", next_step="lamina tail follows it")


def check_upstream(name: str, url: str) -> CheckLine:
    """Connect to a server and ask for its first page, with no key."""
    parts = urlsplit(url)
    subject = f"upstream {name}"
    try:
        with closing(_open_connection(parts.scheme, parts.netloc)) as connection:
            connection.request("HEAD", parts.path or "/")
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        step = "start the server, or check its address and the network"
        return wrong(subject, f"{url} does not answer: {error}", next_step=step)
    return ok(subject, f"{url} answers (status {status})")


def _open_connection(scheme: str, netloc: str) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(netloc, timeout=PATIENCE)
    return http.client.HTTPConnection(netloc, timeout=PATIENCE)
