"""Takes the pictures of the inspector in docs/pictures/ from the demo session, in a real browser.

    make screenshots

README has the picture of the session, too: what the page draws, as an SVG file that needs nothing else. Each
other picture is reduced to a few colours, so that it takes less than LARGEST bytes. A browser is found as the
tests find one: the environment variable LAMINA_BROWSER names it, else the system's is used.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from lamina.cli.demo_session import SEED
from lamina.cli.inspect import DemoSource
from lamina.gateway.inspection import PageServer
from lamina.inspector import Inspector, Sessions
from tests.browser.browser import SystemBrowser, browser

FOLDER = Path("docs/pictures")
LARGEST = 150_000
HIGHEST = 1_100
WIDTH = 1280
SVG_WIDTH = 960

STYLE = (
    "<style>svg{color:#566370;background:#fff;font-family:system-ui,sans-serif}"
    ".sum,.whole{color:#15202b;fill:#15202b}.whole{fill:none}.bad{fill:#b3261e}"
    "@media(prefers-color-scheme:dark){svg{color:#9aa7b4;background:#12171d}"
    ".sum,.whole{color:#e6ebf0;fill:#e6ebf0}.whole{fill:none}.bad{fill:#ff8a80}}</style>"
)
"""The colours of the page's themes, for a drawing that stands alone."""


class Picture(NamedTuple):
    """One picture: its name, and what stands behind the address of the demo session."""

    name: str
    address: str


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    opened = browser()
    if not isinstance(opened, SystemBrowser):
        sys.exit("pictures need a browser of the system: install Chromium, or set LAMINA_BROWSER")
    inspector = Inspector(Sessions(sources=[DemoSource(SEED)]))
    session_id = next(each.id for each in inspector.sessions.summaries() if not each.parent)
    session = f"#/s/{session_id}"
    pictures = [
        Picture("sessions", "#/"),
        Picture("request", session),
        Picture("compare", f"{session}?view=compare"),
    ]
    with PageServer(inspector).running() as server, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=opened.path, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": SVG_WIDTH, "height": 900}, locale="en-GB")
        page.goto(server.address + session)
        settle(page)
        save_drawing(page)
        for picture in pictures:
            page = chromium.new_page(viewport={"width": WIDTH, "height": 900}, locale="en-GB")
            page.goto(server.address + picture.address)
            settle(page)
            save_picture(page, picture)
        chromium.close()
    return 0


def settle(page: Page) -> None:
    page.wait_for_timeout(500)
    page.wait_for_selector("main:not([aria-busy]) > *", timeout=120_000)
    page.wait_for_timeout(500)


def save_drawing(page: Page) -> None:
    """The picture of the session as a file of its own, without the mark of what is selected."""
    page.evaluate("document.querySelector('.picture .selected').remove()")
    drawing = page.evaluate(
        "new window.XMLSerializer().serializeToString(document.querySelector('.picture'))"
    )
    opening, _, rest = drawing.partition(">")
    path = FOLDER / "session.svg"
    path.write_text(f"{opening}>{STYLE}{rest}\n", "utf-8")
    print(f"{path}: {path.stat().st_size:,} bytes")


def save_picture(page: Page, picture: Picture) -> None:
    """The page as a PNG file, from its top down to HIGHEST, with as many colours as its size allows."""
    page.evaluate("window.scrollTo(0, 0)")
    height = page.evaluate("Math.ceil(document.querySelector('main').getBoundingClientRect().bottom)")
    page.set_viewport_size({"width": WIDTH, "height": min(height, HIGHEST)})
    page.wait_for_timeout(300)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    path = FOLDER / f"{picture.name}.png"
    for colours in (256, 128, 64, 32):
        reduced = image.quantize(colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        reduced.save(path, "PNG", optimize=True)
        if path.stat().st_size <= LARGEST:
            print(f"{path}: {path.stat().st_size:,} bytes, {colours} colours")
            return
    sys.exit(f"{path} has more than {LARGEST:,} bytes: show less of the page")


if __name__ == "__main__":
    sys.exit(main())
