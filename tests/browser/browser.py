"""A real browser for tests of pages: it opens one, and reports its complaints and its requests.

    with browser() as opened:
        page = opened.open(path.as_uri())
        assert page.evaluate("document.title") == "..."
        assert (page.complaints, page.requests) == ([], [])

Playwright drives a Chromium of this machine: the one that the environment variable LAMINA_BROWSER names, or
the system's. No browser is downloaded. If there is none, the Chromium in the package kaleido 0.2.1 is used,
which needs nothing of the system: see `framed.py`. Nothing here knows what is on a page.
"""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

from playwright.sync_api import ConsoleMessage, Error, Request, sync_playwright
from playwright.sync_api import Page as PlaywrightPage

from tests.browser.framed import Framed, NoBrowser

__all__ = ["Browser", "NoBrowser", "Page", "SystemBrowser", "browser"]

VARIABLE = "LAMINA_BROWSER"
BUNDLED = "kaleido"
"""The value of the variable that asks for the browser of the package, whatever else is there."""

NAMES = (
    "chromium chromium-browser chromium-headless-shell chrome-headless-shell headless_shell google-chrome "
    "google-chrome-stable microsoft-edge"
).split()
SETTLING = 50
"""Milliseconds after which complaints that were under way have arrived."""


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
    wanted_name = os.environ.get(VARIABLE)
    if wanted_name == BUNDLED:
        return Framed()
    names = [wanted_name] if wanted_name else NAMES
    for name in names:
        path = shutil.which(name)
        if path:
            return SystemBrowser(path)
    if wanted_name:
        raise NoBrowser(f"{VARIABLE} is {wanted_name!r}, and there is no such program")
    return Framed()


class SystemBrowser:
    """One process of a browser; each page has a profile of its own."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> Self:
        self._playwright = sync_playwright().start()
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=self.path, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
        except Error as error:
            self._playwright.stop()
            raise NoBrowser(f"{self.path}: {error.message}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()

    def open(self, url: str, *, scheme: str = "light", width: int = 1280, height: int = 900) -> SystemPage:
        page = self._browser.new_page(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": height},
        )
        return SystemPage(page, url)


class SystemPage:
    """One page of a browser. It listens before the page loads, so that nothing is missed."""

    def __init__(self, page: PlaywrightPage, url: str) -> None:
        self._page = page
        self._url = url
        self._complaints: list[str] = []
        self._requests: list[str] = []
        page.on("console", self._hear_console)
        page.on("pageerror", lambda error: self._complaints.append(f"{error.name}: {error.message}"))
        page.on("request", self._hear_request)
        page.goto(url)

    def evaluate(self, expression: str) -> Any:
        try:
            return self._page.evaluate(expression)
        except Error as error:
            raise AssertionError(f"{expression}: {error.message}") from None

    def press(self, *keys: str) -> None:
        """Press keys as a person does, one after the other: "Tab", "Enter", "j"."""
        for key in keys:
            self._page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self._page.keyboard.type(text)

    def drag(self, selector: str, start: float, end: float) -> None:
        """Drag over an element, from one share of its width to another."""
        box = self._page.locator(selector).bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        self._page.mouse.move(box["x"] + start * box["width"], middle)
        self._page.mouse.down()
        self._page.mouse.move(box["x"] + end * box["width"], middle, steps=5)
        self._page.mouse.up()

    def save_picture(self, path: str, *, width: int = 1280) -> None:
        """The whole page as a PNG file, in a window of this width."""
        self._page.set_viewport_size({"width": width, "height": 900})
        self._page.screenshot(path=path, full_page=True)

    @property
    def complaints(self) -> list[str]:
        self._page.wait_for_timeout(SETTLING)
        return list(self._complaints)

    @property
    def requests(self) -> list[str]:
        return list(self._requests)

    def _hear_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._complaints.append(message.text)

    def _hear_request(self, request: Request) -> None:
        if request.url != self._url:
            self._requests.append(request.url)
