"""How long the inspector takes to open a long conversation that lamina recorded.

    python bench/inspector_records.py               200, 2,000 and 20,000 requests
    python bench/inspector_records.py --quick       200 requests only, and no browser

Each size is measured in a process of its own: seconds of the processor for the list of sessions, for the
strip, for the last request, and for the strip once more; and the most memory that the process had. The
conversation is made up and grows by an answer and a question. Its client drops old turns at 400, and each
such step loses the cache. Where there is a browser of the system, it opens the largest one and scrolls the
list of requests; the longest task is the longest time in which the page could not answer its reader.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `tests`, however this is started

import anyio
import msgspec
from playwright.sync_api import sync_playwright

from lamina.conversations.record import Answered, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import ConversationState, conversation_place
from lamina.dialects.usage import Usage
from lamina.inspector.built_values import BuildSettings
from lamina.inspector.request_views import show_request
from lamina.inspector.server import make_server
from lamina.inspector.sessions import Sessions
from lamina.inspector.stored_sessions import StoredSessions
from lamina.inspector.views import Inspector, show_session
from lamina.stores.address import open_store
from lamina.stores.port import Store
from tests.browser.browser import SystemBrowser, browser

SIZES = (200, 2_000, 20_000)
MOST_TURNS = 400
KEPT_TURNS = 101
BATCH = 100
MODEL = "claude-sonnet-4-5"
WORKSPACE = "default"
PATIENCE = 120_000

WATCH = """window.longest = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({ type: "longtask", buffered: true });"""

_Value = TypeVar("_Value")


class Figures(NamedTuple):
    """What one size took: seconds of the processor, and megabytes."""

    listed: float
    strip: float
    request: float
    strip_again: float
    megabytes: int


def main() -> int:
    options = _read_options()
    if options.measure:
        print(json.dumps(measure(Path(options.measure))))
        return 0
    print("| requests | list, s | strip, s | last request, s | strip again, s | memory, MB |")
    print("|--:|--:|--:|--:|--:|--:|")
    sizes = SIZES[:1] if options.quick else SIZES
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.db"
            anyio.run(write_conversation, path, size)
            command = [sys.executable, __file__, "--measure", str(path)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            figures = Figures(*json.loads(output))
            seconds = " | ".join(f"{value:.2f}" for value in figures[:4])
            print(f"| {size:,} | {seconds} | {figures.megabytes} |")
            rows.append({"requests": size, **figures._asdict()})
        if not options.quick:
            _measure_page(path)
    if options.json:
        options.json.write_text(json.dumps(rows), encoding="utf-8")
    return 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the smallest conversation only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--measure", metavar="STORE", help=argparse.SUPPRESS)
    return parser.parse_args()


async def write_conversation(path: Path, size: int) -> None:
    """A record of so many requests, as a gateway would have written it."""
    randomness = random.Random(size)  # noqa: S311 - made up
    vocabulary = [f"word{number}" for number in range(2_000)]
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Go on with the parcels."}]
    writer = RecordWriter()
    where = conversation_place(WORKSPACE, "talk")
    sent_before = 0
    async with open_store(str(path)) as store:
        for number in range(size):
            if len(turns) > MOST_TURNS:
                turns = [turns[0], *turns[-KEPT_TURNS:]]
            request = {
                "model": MODEL,
                "max_tokens": 99,
                "system": "You are careful. " * 100,
                "messages": turns,
            }
            body = msgspec.json.encode(request)
            tokens = len(body) // 4
            read = sent_before if tokens >= sent_before else 400
            sent_before = tokens
            add_exchange(
                writer, number, body, Usage(input=tokens, cached=read, written=tokens - read, output=40)
            )
            turns.append({"role": "assistant", "content": f"Step {number}."})
            turns.append({"role": "user", "content": " ".join(randomness.choices(vocabulary, k=45))})
            if number % BATCH == BATCH - 1 or number == size - 1:
                state = ConversationState(dialect="anthropic", title="Go on", model=MODEL, keep="all")
                head = (await store.read(where, last=0)).head
                await store.append(where, writer.encode(), was=head.state, state=state.encode())
                writer.saved()


def add_exchange(writer: RecordWriter, number: int, body: bytes, usage: Usage) -> None:
    at = 1_790_000_000.0 + 9 * number
    sent_id = f"r{number}"
    request = SentRequest(id=sent_id, at=at, dialect="anthropic", model=MODEL, window=200_000, size=len(body))
    writer.add_sent(request, body=body)
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": f"Step {number}."}],
    }
    answered = Answered(
        id=sent_id, at=at + 3, status=200, first=0.5, last=3.0, content_type="application/json", usage=usage
    )
    writer.add_answer(answered, body=msgspec.json.encode(answer))


def open_inspector(path: Path) -> Inspector:
    def ask(operation: Callable[[Store], Awaitable[_Value]], /) -> _Value:
        async def run() -> _Value:
            async with open_store(str(path)) as store:
                return await operation(store)

        return anyio.run(run)

    return Inspector(Sessions(sources=[StoredSessions(ask, WORKSPACE, pause=3_600.0)]))


def measure(path: Path) -> Figures:
    """Open a conversation as a page does, one answer after the other."""
    inspector = open_inspector(path)
    settings = BuildSettings()
    laps = [time.process_time()]
    session_id = inspector.sessions.summaries()[0].id
    laps.append(time.process_time())
    calls = show_session(inspector, session_id, settings)["calls"]
    laps.append(time.process_time())
    show_request(inspector, session_id, len(calls) - 1, settings)
    laps.append(time.process_time())
    show_session(inspector, session_id, settings)
    laps.append(time.process_time())
    listed, strip, request, strip_again = (after - before for before, after in pairwise(laps))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Figures(listed, strip, request, strip_again, megabytes)


def _measure_page(path: Path) -> None:
    """Open the strip in a browser and scroll the list of requests to its end."""
    opened = browser()
    if not isinstance(opened, SystemBrowser):
        print("no browser of the system: the page was not measured")
        return
    inspector = open_inspector(path)
    session_id = inspector.sessions.summaries()[0].id
    with make_server(inspector).running() as server, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=opened.path, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(WATCH)
        page.goto(f"{server.address}#/s/{session_id}?view=requests")
        page.wait_for_selector(".request-row[data-number]", timeout=PATIENCE)
        page.wait_for_timeout(1_000)
        opening = page.evaluate("window.longest")
        page.evaluate("window.longest = 0")
        for _ in range(40):
            page.evaluate("document.querySelector('.request-rows').scrollTop -= 3000")
            page.wait_for_timeout(50)
        scrolling = page.evaluate("window.longest")
        chromium.close()
    print(
        f"\nlongest task in the browser: {opening:.0f} ms while it opens, {scrolling:.0f} ms while scrolling"
    )


if __name__ == "__main__":
    sys.exit(main())
