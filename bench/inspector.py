"""How long the inspector takes in a browser: opening, scrolling and selecting in very large sessions.

    python bench/inspector.py                the table, the median of five runs
    python bench/inspector.py --json FILE    the same figures, to a file as well
    python bench/inspector.py --quick        a small session and one run, to see that it works

The sessions are made up. One has a single request of 2,000 entries and a million tokens, one 200 requests,
and one 5,000. "answer" is the time of the server, as the browser sees it, the first time and once it has
built the session; "draw" is from the answer to a page that stands still. "longest task" is the longest time
during which the page could not answer its reader, from the browser's trace: in milliseconds of its processor,
and by the clock, which on a busy machine counts what other programs do as well. The load of the machine is
printed above the table. A browser of the system is needed (LAMINA_BROWSER names one).

With LAMINA_CLAUDE_TAP, the Python of an environment that has claude-tap, its page for the same session is
opened, too. It holds every request whole, so a session of 5,000 growing requests is too large for it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `tests`, however this is started

from playwright.sync_api import Page, sync_playwright

from lamina.inspector.server import make_server
from lamina.inspector.sessions import Sessions
from lamina.inspector.views import Inspector
from tests.browser.browser import SystemBrowser, browser

RUNS = 5
PATIENCE = 600_000  # milliseconds: the first answer builds the whole session
ENTRIES, TOKENS, CALLS, FEWER_CALLS = 2_000, 1_000_000, 5_000, 200
PEER_VARIABLE = "LAMINA_CLAUDE_TAP"
Message = dict[str, Any]

TRACED = ["toplevel", "devtools.timeline"]
"""What the browser's trace holds: every task of every thread, with the time that it took of a processor."""

# Writes the page of claude-tap for a file of its records: its own function does it.
MAKE_PEER_PAGE = """import sys
from pathlib import Path
from claude_tap.viewer import _generate_html_viewer
_generate_html_viewer(Path(sys.argv[1]), Path(sys.argv[2]))"""

SETTLED = "!document.querySelector('main').hasAttribute('aria-busy') && document.querySelector('.entry')"


class Sample(NamedTuple):
    """A session to measure."""

    name: str
    messages: list[Message]


class Figure(NamedTuple):
    """One thing that somebody does: its milliseconds and its longest task, each the median of all runs.

    The milliseconds are of the clock, the longest task is `long_task` of the processor and `long_wait` of the
    clock.
    """

    session: str
    what: str
    milliseconds: float
    long_task: float = 0.0
    long_wait: float = 0.0


def main() -> int:
    options = _read_options()
    opened = browser()
    if not isinstance(opened, SystemBrowser):
        message = "a browser of the system is needed: install Chromium, or set LAMINA_BROWSER"
        if options.quick:
            print(message)
            _write(options.json, [])
            return 0
        print(message, file=sys.stderr)
        return 2
    samples = _make_samples(quick=options.quick)
    figures: list[Figure] = []
    for sample in samples:
        figures += _measure(sample, opened.path, runs=1 if options.quick else RUNS)
    _print(figures)
    _write(options.json, figures)
    return 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="a second or two on small sessions")
    return parser.parse_args()


def _make_samples(*, quick: bool) -> list[Sample]:
    shrink = 20 if quick else 1
    entries = ENTRIES // shrink
    one_request = _make_messages(entries // 2, calls_apart=False, tokens=TOKENS // shrink)
    fewer_requests = _make_messages(
        FEWER_CALLS // shrink, calls_apart=True, tokens=100 * FEWER_CALLS // shrink
    )
    many_requests = _make_messages(CALLS // shrink, calls_apart=True, tokens=100 * CALLS // shrink)
    return [
        Sample(f"1 request, {entries:,} entries", one_request),
        Sample(f"{FEWER_CALLS // shrink:,} requests", fewer_requests),
        Sample(f"{CALLS // shrink:,} requests", many_requests),
    ]


def _make_messages(pairs: int, *, calls_apart: bool, tokens: int) -> list[Message]:
    """Calls and their results: one answer after the other, or all of them in one."""
    line = "    total = total + item.price * item.count  # {}\n"
    lines = max(tokens // pairs // 16, 1)
    messages: list[Message] = [{"role": "user", "content": "Read everything."}]
    calls: list[Message] = []
    results: list[Message] = []
    for number in range(pairs):
        arguments = json.dumps({"path": f"src/module_{number}.py"})
        function = {"name": "read_file", "arguments": arguments}
        calls.append({"id": f"c{number}", "type": "function", "function": function})
        content = "".join(line.format(number * lines + at) for at in range(lines))
        results.append({"role": "tool", "tool_call_id": f"c{number}", "content": content})
    if not calls_apart:
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += results
    else:
        for call, result in zip(calls, results, strict=True):
            messages += [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
    return [*messages, {"role": "assistant", "content": "Done."}]


def _measure(sample: Sample, browser_path: str, *, runs: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        row = {"id": "bench", "format": "openai-chat", "model": "gpt-5", "messages": sample.messages}
        path = Path(folder) / "session.jsonl"
        path.write_text(json.dumps(row) + "\n", "utf-8")
        inspector = Inspector(Sessions([str(path)]))
        with make_server(inspector).running() as server, sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1280, "height": 900})
            session_id = inspector.sessions.summaries()[0].id
            first = _time(
                lambda: page.request.get(f"{server.address}api/session/{session_id}", timeout=PATIENCE)
            )
            last = len(inspector.sessions.get(session_id).conversation.calls) - 1
            page.request.get(f"{server.address}api/request/{session_id}/{last}", timeout=PATIENCE)
            figures = [Figure(sample.name, "answer, the first time", first)]
            address = f"{server.address}#/s/{session_id}"
            again = [
                _time(lambda: page.request.get(f"{server.address}api/session/{session_id}", timeout=PATIENCE))
                for _ in range(runs)
            ]
            figures.append(Figure(sample.name, "answer, built before", statistics.median(again)))
            for what, act in _actions(address, session_id, last).items():
                figures.append(_repeat(sample.name, what, page, act, runs))
            if len(sample.messages) <= ENTRIES + FEWER_CALLS:
                figures += _measure_peer(sample, page, Path(folder), runs)
            chromium.close()
    return figures


def _actions(address: str, session_id: str, last: int) -> dict[str, Callable[[Page], None]]:
    def open_page(page: Page) -> None:
        page.goto("about:blank")
        page.goto(address)
        _wait(page, SETTLED)

    def scroll(page: Page) -> None:
        for at in range(20):
            page.evaluate(f"document.querySelector('.entries').scrollTop = {at * 2000}")
            page.evaluate("new Promise((done) => requestAnimationFrame(() => done()))")

    def select_entry(page: Page) -> None:
        page.evaluate("document.querySelector('.entries').scrollTop = 0")
        page.evaluate("new Promise((done) => setTimeout(done, 60))")
        page.evaluate("location.hash = location.hash.replace(/\\/seg\\/.*/, '')")
        page.locator(".entry").nth(3).click()
        _wait(page, f"{SETTLED} && document.querySelector('.pane-body')")

    def select_request(page: Page) -> None:
        for number in (max(last - 1, 0), last):
            page.evaluate(f"location.hash = '#/s/{session_id}/r/{number}'")
            title = f"document.querySelector('.view h2').textContent.startsWith('Request {number + 1}')"
            _wait(page, f"{SETTLED} && {title}")

    return {
        "open and draw": open_page,
        "scroll the entries, 20 steps": scroll,
        "select an entry": select_entry,
        "select a request and go back": select_request,
    }


def _measure_peer(sample: Sample, page: Page, folder: Path, runs: int) -> list[Figure]:
    """How long the page of claude-tap for the same session takes to open; nothing if it is not installed."""
    python = os.environ.get(PEER_VARIABLE)
    if not python:
        print(f"claude-tap is left out: {PEER_VARIABLE} does not name a Python that has it", file=sys.stderr)
        return []
    records = folder / "claude-tap.jsonl"
    with records.open("w", encoding="utf-8") as file:
        for record in _peer_records(sample.messages):
            file.write(json.dumps(record) + "\n")
    target = folder / "claude-tap.html"
    subprocess.run([python, "-c", MAKE_PEER_PAGE, str(records), str(target)], check=True)

    def open_page(page: Page) -> None:
        page.goto("about:blank")
        page.goto(target.as_uri())
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    return [_repeat(sample.name, "open and draw, claude-tap", page, open_page, runs)]


def _peer_records(messages: list[Message]) -> list[dict[str, Any]]:
    """The calls of a session as claude-tap records them: each with its whole request and its answer."""
    records: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        usage = {"prompt_tokens": 1000 + index, "completion_tokens": 10}
        answer = {"id": f"r{index}", "model": "gpt-5", "choices": [{"message": message}], "usage": usage}
        body = {"model": "gpt-5", "messages": messages[:index]}
        records.append(
            {
                "timestamp": f"2026-01-01T00:{index // 60 % 60:02}:{index % 60:02}Z",
                "request_id": f"r{index}",
                "turn": len(records) + 1,
                "duration_ms": 1000,
                "request": {"method": "POST", "path": "/v1/chat/completions", "headers": {}, "body": body},
                "response": {"status": 200, "headers": {}, "body": answer},
            }
        )
    return records


def _repeat(session: str, what: str, page: Page, act: Callable[[Page], None], runs: int) -> Figure:
    times: list[float] = []
    tasks: list[tuple[float, float]] = []
    browser_of_page = page.context.browser
    assert browser_of_page is not None  # noqa: S101 - for the type checker
    for _ in range(runs):
        browser_of_page.start_tracing(page=page, categories=TRACED)
        times.append(_time(lambda: act(page)))
        page.wait_for_timeout(120)  # what was begun ends
        tasks.append(_find_longest_tasks(browser_of_page.stop_tracing()))
    long_tasks, long_waits = zip(*tasks, strict=True)
    return Figure(
        session, what, statistics.median(times), statistics.median(long_tasks), statistics.median(long_waits)
    )


def _find_longest_tasks(trace: bytes) -> tuple[float, float]:
    """The milliseconds of the longest task of a page's main thread: of a processor, and of the clock."""
    events = json.loads(trace)["traceEvents"]
    main_threads = set()
    for event in events:
        if event.get("name") == "thread_name" and event["args"]["name"] == "CrRendererMain":
            main_threads.add((event["pid"], event["tid"]))
    long_task = 0.0
    long_wait = 0.0
    for event in events:
        is_task = event.get("name") in ("RunTask", "ThreadControllerImpl::RunTask")
        if is_task and (event["pid"], event["tid"]) in main_threads:
            long_task = max(long_task, event.get("tdur", 0) / 1000)
            long_wait = max(long_wait, event.get("dur", 0) / 1000)
    return long_task, long_wait


def _wait(page: Page, condition: str) -> None:
    """Wait in the page itself: its own policy forbids the waiting of Playwright, which evaluates text."""
    page.evaluate(
        f"""() => new Promise((done) => {{
          const look = () => ({condition}) ? requestAnimationFrame(() => done()) : setTimeout(look, 5);
          look();
        }})"""
    )


def _time(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1000


def _print(figures: list[Figure]) -> None:
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{os.cpu_count()} processors, load of the last 1, 5 and 15 minutes: {loads}")
    print(f"{'session':<26} {'what':<32} {'ms':>8} {'longest task, ms':>16} {'by the clock':>12}")
    for figure in figures:
        print(
            f"{figure.session:<26} {figure.what:<32} {figure.milliseconds:>8,.0f} "
            f"{figure.long_task:>16,.0f} {figure.long_wait:>12,.0f}"
        )


def _write(path: str | None, figures: list[Figure]) -> None:
    if path:
        rows = [figure._asdict() for figure in figures]
        Path(path).write_text(json.dumps({"figures": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
