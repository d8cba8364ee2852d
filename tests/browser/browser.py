"""A real browser for tests of pages: opens one, and tells what it complained about and what it asked for.

    with browser() as opened:
        page = opened.open(path.as_uri())
        assert page.evaluate("document.title") == "..."
        assert (page.complaints, page.requests) == ([], [])

It is a Chromium of this machine, spoken to over two pipes in the DevTools protocol: the one that the
environment variable LAMINA_BROWSER names, or the system's. Where there is none it is the one that comes
with the package kaleido 0.2.1, which needs nothing of the system: see `framed.py`. Nothing here knows what
is on a page.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from select import select
from typing import Any, Protocol, Self

from tests.browser.framed import Framed, NoBrowser

__all__ = ["Browser", "DevTools", "NoBrowser", "Page", "browser"]

VARIABLE = "LAMINA_BROWSER"
BUNDLED = "kaleido"
"""The value of the variable that asks for the browser of the package, whatever else is there."""

NAMES = (
    "chromium chromium-browser chrome-headless-shell headless_shell google-chrome google-chrome-stable "
    "microsoft-edge"
).split()
PATIENCE = 30.0
"""Seconds that a browser may take to answer."""

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions "
    "--disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe"
).split()
_PIPES = """import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A browser wants the pipes as 3 and 4, whatever their numbers are here."""


class Page(Protocol):
    """A page that has loaded."""

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, awaited where it is a promise."""

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings in the console, exceptions, and what the page's own policy forbade."""

    @property
    def requests(self) -> list[str]:
        """Everything that the page asked for, besides itself."""


class Browser(Protocol):
    def open(self, url: str, *, scheme: str = "light") -> Page:
        """A page once it has loaded; `scheme` is what its reader prefers, light or dark."""


def browser() -> AbstractContextManager[Browser]:
    """The browser of this machine."""
    named = os.environ.get(VARIABLE)
    if named == BUNDLED:
        return Framed()
    found = next(filter(None, map(shutil.which, [named] if named else NAMES)), None)
    if found is None and named:
        raise NoBrowser(f"{VARIABLE} is {named!r}, and there is no such program")
    return DevTools(found) if found else Framed()


class DevTools:
    """One process of a browser, with a profile of its own that is removed in the end."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(prefix="lamina-browser-", ignore_cleanup_errors=True)
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        command = [self.path, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PIPES, str(reads), str(writes), *command],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        self._asked, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(NoBrowser, OSError):
            self.ask("Browser.close")
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def open(self, url: str, *, scheme: str = "light") -> Page:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = _Page(self, session, url)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.ask("Emulation.setEmulatedMedia", features=features)
        page.ask("Page.navigate", url=url)
        page.wait_for("Page.loadEventFired")
        return page

    def ask(self, method: str, *, session: str = "", **parameters: Any) -> dict[str, Any]:
        """One command and its result; what else the browser says meanwhile is kept in `events`."""
        self._asked += 1
        command: dict[str, Any] = {"id": self._asked, "method": method, "params": parameters}
        command |= {"sessionId": session} if session else {}
        os.write(self._to, json.dumps(command).encode() + b"\0")
        for message in self.messages():
            if message.get("id") == command["id"]:
                if "error" in message:
                    raise NoBrowser(f"{method}: {message['error'].get('message')}")
                result: dict[str, Any] = message["result"]
                return result
        raise NoBrowser(f"{self.path} did not answer {method}")

    def messages(self) -> Iterator[dict[str, Any]]:
        """What the browser says, until it is silent for too long."""
        end = time.monotonic() + PATIENCE
        while True:
            while b"\0" in self._rest:
                first, self._rest = self._rest.split(b"\0", 1)
                message = json.loads(first)
                if "method" in message:
                    self.events.append(message)
                yield message
            if not select([self._from], [], [], max(end - time.monotonic(), 0))[0]:
                return
            read = os.read(self._from, 1 << 16)
            if not read:
                return
            self._rest += read


class _Page:
    def __init__(self, owner: DevTools, session: str, url: str) -> None:
        self._browser, self._session, self.url = owner, session, url

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, session=self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, event: str) -> None:
        if any(self._is(message, event) for message in self._browser.events):
            return
        for message in self._browser.messages():
            if self._is(message, event):
                return
        raise NoBrowser(f"{self.url}: no {event}")

    @property
    def complaints(self) -> list[str]:
        self.evaluate("new Promise(done => setTimeout(done, 50))")  # what is under way arrives
        return [text for message in self._mine() if (text := _complaint(message))]

    @property
    def requests(self) -> list[str]:
        sent = [told["params"] for told in self._mine() if told["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent if each["request"]["url"] != self.url]

    def _mine(self) -> list[dict[str, Any]]:
        return [message for message in self._browser.events if message.get("sessionId") == self._session]

    def _is(self, message: dict[str, Any], event: str) -> bool:
        return message.get("sessionId") == self._session and message.get("method") == event


def _complaint(message: dict[str, Any]) -> str:
    method, told = message["method"], message["params"]
    if method == "Runtime.exceptionThrown":
        return str(told["exceptionDetails"])
    if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
        return str(told["args"])
    if method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
        return str(told["entry"]["text"])
    return ""
