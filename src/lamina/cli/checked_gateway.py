"""Checks the gateway for `lamina doctor`: its journal, what that says of caches and twins, its upstreams."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lamina.cli.check_lines import CheckLine, ok, remark, wrong
from lamina.cli.tail import JournalReader
from lamina.errors import LaminaError

if TYPE_CHECKING:
    from lamina.gateway.config import GatewaySettings

PATIENCE = 5.0


def check_gateway(settings: GatewaySettings, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Where requests go and are noted, and what earlier requests say about caches and twins."""
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
    if path is not None and path.is_file():
        yield from _check_reports(path)
    if settings.twin.share:
        yield from _check_twins(settings, path)


def _describe_journal(path: Path | None) -> CheckLine:
    """Where the gateway writes a line for each request."""
    if path is None:
        step = 'set `journal = "FILE"` in the settings to follow requests with lamina tail'
        return ok("journal", "no file of requests is written", next_step=step)
    return ok("journal", f"one line a request in {path}", next_step="lamina tail follows it")


def _check_reports(path: Path) -> Iterator[CheckLine]:
    """How often the providers' own reasons for cache misses agreed with lamina's causes so far."""
    from lamina.gateway.account import GatewayAccount  # noqa: PLC0415 - an extra

    account = GatewayAccount()
    with JournalReader(path) as reader:
        for line in (*reader.read_older(), *reader.read_new()):
            if _REPORT_SIGN in line:
                account.read_line(line)
    rate = account.reports
    if rate.differed:
        step = "lamina tail --json prints them: each names both requests and the byte that differs"
        yield remark("cache reports", str(rate), next_step=step)
    elif str(rate):
        yield ok("cache reports", str(rate))


_REPORT_SIGN = b'"cache report"'
"""What a line about a provider's own reason has. Other lines are not decoded."""


def _check_twins(settings: GatewaySettings, path: Path | None) -> Iterator[CheckLine]:
    """What the twin run has found so far at each upstream."""
    last_events = _read_twin_events(path)
    for name in settings.upstreams:
        subject = f"twin at {name}"
        event = last_events.get(name)
        if event is None:
            share = f"{100 * settings.twin.share:g} %"
            yield ok(subject, f"no call was compared yet; {share} of those that lamina changes are")
            continue
        report = str(event.get("report", ""))
        if event.get("decision") == "below the bar":
            step = 'give a larger window, or prefer = "memory", under [policy]; then set another twin.salt'
            yield remark(subject, report, next_step=step)
        else:
            yield ok(subject, report)


def _read_twin_events(path: Path | None) -> dict[str, Mapping[str, Any]]:
    """The last line that a gateway wrote about the twins at each upstream."""
    from lamina.gateway.journal import read_journal  # noqa: PLC0415 - an extra

    last_events: dict[str, Mapping[str, Any]] = {}
    if path is None:
        return last_events
    for event in read_journal(path):
        if event.get("event") == "twin":
            last_events[str(event.get("upstream"))] = event
    return last_events


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
