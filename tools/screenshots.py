"""Takes the pictures of the inspector in docs/pictures/ from the demo session, in a real browser.

    make screenshots

A browser is found as the tests find one: the environment variable LAMINA_BROWSER names it, else the system's
is used. Each picture is reduced to a few colours, so that it takes less than LARGEST bytes.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from lamina.cli.demo_session import SEED
from lamina.cli.inspect import DemoSource
from lamina.cli.recording import make_recording
from lamina.inspector import Inspector, Sessions, request_views, segment_views
from lamina.inspector.server import make_server
from lamina.inspector.views import show_session
from tests.browser.browser import SystemBrowser, browser

FOLDER = Path("docs/pictures")
LARGEST = 150_000
HIGHEST = 1_400
LONGEST_LINE = 50
WIDTH = 1280
FIRST_TIME = 1_790_000_000
HOUR = 3_600


class Picture(NamedTuple):
    """One picture: its name, the address behind the #, and what is done before it is taken."""

    name: str
    address: str
    click: str = ""


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    demo = DemoSource(SEED)
    with tempfile.TemporaryDirectory() as folder:
        paths = list(write_sessions(Path(folder)))
        inspector = Inspector(Sessions([str(path) for path in paths], [demo]))
        with make_server(inspector).running() as server:
            take_pictures(list_pictures(inspector), server.address)
    return 0


def write_sessions(folder: Path) -> Iterator[Path]:
    """Three small sessions beside that of the demo, so that the list is one."""
    for seed, turns, title in ((3, 4, "notes"), (11, 6, "search"), (5, 3, "tests")):
        recording = make_recording(seed, turns=turns)
        row = {
            "id": title,
            "format": "openai-chat",
            "model": recording["model"],
            "messages": recording["messages"],
            "tools": recording["tools"],
            "meta": {"usage": invent_usage(recording["messages"], FIRST_TIME - seed * HOUR)},
        }
        path = folder / f"{title}.jsonl"
        path.write_text(json.dumps(row) + "\n", "utf-8")
        yield path


def invent_usage(messages: list[dict[str, Any]], start: int) -> list[dict[str, Any]]:
    """A time and a usage for each call: one every 30 seconds, with a long pause after the first half."""
    usage: list[dict[str, Any]] = []
    size = 0
    sent_before = 0
    last_role = "assistant"
    for index, message in enumerate(messages):
        if message["role"] == "assistant" and last_role != "assistant":
            is_later = index > len(messages) // 2
            moment = start + 30 * len(usage) + 20 * HOUR * is_later
            is_cold = bool(usage) and moment - usage[-1]["ts"] > HOUR
            cached = 0 if is_cold else sent_before
            tokens = {"input_tokens": size, "cached_input_tokens": cached, "output_tokens": 180}
            usage.append({"index": index, "ts": moment, **tokens})
            sent_before = size
        size += len(json.dumps(message)) // 4
        last_role = message["role"]
    return usage


def list_pictures(inspector: Inspector) -> list[Picture]:
    summaries = inspector.sessions.summaries()
    session_id = next(each.id for each in summaries if each.source == "demo" and not each.parent)
    calls = show_session(inspector, session_id)["calls"]
    recalled = next(call["number"] for call in calls if call["recalled"])
    lost = next(call["number"] for call in calls if call["loss"] and not call["cut"])
    text = find_hidden_line(inspector, session_id, recalled)
    request = f"#/s/{session_id}/r/{recalled}"
    return [
        Picture("sessions", "#/"),
        Picture("request", request),
        Picture("segment", f"{request}?tab=Original", click="#unseen .link"),
        Picture("compare", f"#/s/{session_id}/r/{lost}?view=compare"),
        Picture("what-if", f"#/s/{session_id}?view=whatif"),
        Picture("visible", f"{request}?view=visible&text={quote(text)}"),
    ]


def find_hidden_line(inspector: Inspector, session_id: str, number: int) -> str:
    """A line of the largest result that this request leaves out."""
    entries = request_views.show_request(inspector, session_id, number)["entries"]
    results = [entry for entry in entries if entry["form"] == "OMITTED" and entry["kind"] == "tool_result"]
    largest = max(results, key=lambda entry: entry["full_tokens"])
    segment = segment_views.show_segment(inspector, session_id, number, largest["ref"])
    lines = [line.strip() for line in str(segment["original"]).split("\n")]
    return max((line for line in lines if len(line) <= LONGEST_LINE), key=len)


def take_pictures(pictures: list[Picture], address: str) -> None:
    opened = browser()
    if not isinstance(opened, SystemBrowser):
        sys.exit("pictures need a browser of the system: install Chromium, or set LAMINA_BROWSER")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=opened.path, args=["--no-sandbox"])
        for picture in pictures:
            page = chromium.new_page(viewport={"width": WIDTH, "height": 900}, locale="en-GB")
            page.goto(f"{address}{picture.address}")
            settle(page)
            if picture.click:
                page.locator(picture.click).first.click()
                settle(page)
            save_picture(page, picture)
            page.close()
        chromium.close()


def settle(page: Page) -> None:
    page.wait_for_timeout(200)
    page.wait_for_selector("main:not([aria-busy]) > *", timeout=120_000)
    page.wait_for_selector(".computing progress", state="hidden", timeout=120_000)  # what if, row by row
    page.wait_for_timeout(400)


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
