"""A recorded session in a real browser: what was sent and answered, the search, and keys alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from lamina.cli.inspect import DemoSource
from lamina.conversations.record import Answered, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import ConversationState, conversation_place
from lamina.dialects import Usage
from lamina.gateway.inspection import PageServer
from lamina.inspector import Inspector, Sessions
from lamina.inspector.one_file import save_session
from lamina.inspector.views import show_session
from lamina.stores import open_store
from tests.browser.browser import Browser, SystemBrowser, SystemPage
from tests.browser.browser import browser as start_browser
from tests.conversations.recorded_talk import WORKSPACE, StoreAsker
from tests.conversations.truth import open_inspector
from tests.inspector.test_browser import AXE, HOSTILE, View, find_problems

PHONE = 390
UPPER_THIRD = 300
"""A third of a window of 900 pixels."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as opened:
        if not isinstance(opened, SystemBrowser):
            pytest.skip("the browser of the package opens files alone")
        yield opened


@pytest.fixture(scope="module")
def demo() -> DemoSource:
    return DemoSource(7)


@pytest.fixture(scope="module")
def inspector(demo: DemoSource) -> Inspector:
    return Inspector(Sessions([], [demo]))


@pytest.fixture(scope="module")
def server(inspector: Inspector) -> Iterator[PageServer]:
    with PageServer(inspector).running() as running:
        yield running


@pytest.fixture(scope="module")
def calls(inspector: Inspector, session_id: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = show_session(inspector, session_id)["calls"]
    return shown


@pytest.fixture(scope="module")
def session_id(inspector: Inspector) -> str:
    return next(each.id for each in inspector.sessions.summaries() if not each.parent)


def open_page(browser: Browser, server: PageServer, **options: Any) -> tuple[View, SystemPage]:
    assert isinstance(browser, SystemBrowser)
    page = browser.open(server.address, **options)
    return View(page), page


@pytest.fixture(scope="module")
def view(browser: Browser, server: PageServer) -> View:
    return open_page(browser, server)[0]


def top_of(view: View, selector: str) -> float:
    view.wait(f"document.querySelector({json.dumps(selector)})")
    script = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().top + window.scrollY"
    return float(view.page.evaluate(script))


# What was sent, and what came back.


def test_the_raw_bytes_and_the_answer_are_those_of_the_record(
    view: View, inspector: Inspector, session_id: str, calls: list[dict[str, Any]]
) -> None:
    sent = inspector.sessions.get(session_id).sent
    recalled = next(call["number"] for call in calls if call["recalled"])
    view.go(f"#/s/{session_id}/r/{recalled}")
    assert "recall" in view.text("#answer")
    assert "status 200" in view.text("#answer")
    view.click("[data-show=raw]")
    view.click("[data-look=exact]")
    assert view.text("#raw-text").encode() == sent.record.sent_body(sent.calls[recalled])
    view.click("[data-show=answer]")
    view.click("#show-raw")
    assert view.text("#raw-answer").encode() == sent.record.answer_body(sent.calls[recalled])
    assert view.page.complaints == []


def test_recalls_errors_and_sub_agents_are_rows_of_their_own(
    view: View, session_id: str, calls: list[dict[str, Any]]
) -> None:
    refused = next(call["number"] for call in calls if call["refusal"])
    view.go(f"#/s/{session_id}/r/{refused}")
    view.click("[data-view=requests]")
    rows = dict(
        zip(
            view.page.evaluate(
                "[...document.querySelectorAll('.request-row[data-number]')].map(e => e.dataset.number)"
            ),
            view.texts(".request-row[data-number]"),
            strict=True,
        )
    )
    assert "529" in rows[str(refused)]
    recalled = next(call["number"] for call in calls if call["recalled"])
    view.go(f"#/s/{session_id}/r/{recalled}")
    view.click("[data-view=requests]")
    texts = view.texts(".request-row")
    assert any("sent with what the model recalled" in text for text in texts)
    view.page.evaluate("void (document.querySelector('.request-rows').scrollTop = 0)")
    scroll = "!(document.querySelector('.request-rows').scrollTop += 200)"
    view.wait(f"document.querySelector('.request-row.child') || {scroll}")
    view.click(".request-row.child")
    assert "explain how a parcel gets its rate" in view.text("h1")


def test_a_lost_cache_has_its_cause_its_byte_and_its_price(
    view: View, session_id: str, calls: list[dict[str, Any]]
) -> None:
    lost = next(call for call in calls if call["loss"] and not call["cut"])
    view.go(f"#/s/{session_id}/r/{lost['number']}")
    view.click("#why-cost")
    assert view.clicks == 1
    assert "The system text changed" in view.text("#verdict .sentence")
    assert f"{lost['loss']['tokens']:,} tokens were paid anew" in view.text("#reported")
    assert "Today is Tuesday" in view.text("#first-byte .added")
    assert view.texts(".sides .added")[0] == " Today is Tuesday."


# The first screen.


def test_the_first_screen_begins_in_its_upper_third(
    browser: Browser, server: PageServer, session_id: str
) -> None:
    for width, height in ((1440, 900), (PHONE, 844)):
        opened, _ = open_page(browser, server, width=width, height=height)
        opened.go(f"#/s/{session_id}")
        assert top_of(opened, ".picture") < height / 3
        overflow = opened.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0
    opened, _ = open_page(browser, server, width=1440, height=900)
    opened.go(f"#/s/{session_id}")
    assert top_of(opened, ".picture") + 100 < UPPER_THIRD
    assert opened.page.evaluate("document.querySelector('.figures').getBoundingClientRect().height") < 40


def test_a_page_at_twice_its_size_has_nothing_beside_its_window(
    browser: Browser, server: PageServer, session_id: str
) -> None:
    """Zoom of 200 % halves the window in pixels of the page."""
    opened, _ = open_page(browser, server, width=640, height=450)
    for address in (
        f"#/s/{session_id}",
        "#/",
        f"#/s/{session_id}/r/5?view=compare",
        f"#/s/{session_id}?view=requests",
    ):
        opened.page.evaluate(f"void (window.location.hash = {json.dumps(address)})")
        opened.settle()
        assert opened.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, address


# Search to the place.


def test_a_search_leads_to_the_place_with_the_word_marked(view: View, session_id: str) -> None:
    view.go("#/")
    view.search("#search", "old_courier")
    places = view.texts("#places mark")
    assert set(places) == {"old_courier"}
    view.click("#places .place")
    view.wait("document.querySelector('.pane-body mark') || document.querySelector('.answer mark')")
    assert view.text("mark") == "old_courier"
    assert view.clicks == 2
    assert session_id in str(view.page.evaluate("location.hash"))
    assert view.page.complaints == []


# Keys alone.


def test_questions_are_answered_with_keys_alone(
    browser: Browser, server: PageServer, session_id: str, calls: list[dict[str, Any]]
) -> None:
    opened, page = open_page(browser, server)
    opened.settle()
    page.press("/")
    page.type("old_courier")
    page.press("Enter")
    opened.wait("document.querySelector('#places')")
    page.press("g")
    last = len(calls) - 1
    opened.go(f"#/s/{session_id}/r/{last}")
    opened.wait("document.querySelector('.live-line') && document.querySelector('.view h2')")
    page.press("k", "k")
    opened.wait(f"document.querySelector('.view h2')?.textContent.startsWith('Request {last - 1} ')")
    page.press("2")
    opened.wait("document.querySelector('.request-rows')")
    opened.page.evaluate("document.querySelector('.request-rows').focus()")
    page.press("ArrowUp", "ArrowUp", "Enter")
    opened.wait(f"document.querySelector('.view h2')?.textContent.startsWith('Request {last - 3} ')")
    page.press("3")
    opened.wait("document.querySelector('#verdict')")
    opened.page.evaluate("document.querySelector('.picture').focus()")
    page.press("ArrowLeft")
    opened.wait(f"document.location.hash.includes('/r/{last - 5}?')")
    opened.settle()
    page.press("ArrowLeft")
    opened.wait(f"document.location.hash.includes('/r/{last - 6}?')")
    page.press("4")
    opened.wait("document.querySelector('#alternatives')")
    page.press("/")
    opened.wait("document.activeElement.id === 'search'")
    assert page.complaints == []


def test_a_session_opens_at_its_most_expensive_event(
    view: View, inspector: Inspector, session_id: str
) -> None:
    opens_at = show_session(inspector, session_id)["totals"]["opens_at"]
    view.go(f"#/s/{session_id}")
    assert view.text(".view h2").startswith(f"Request {opens_at + 1} ")
    assert view.texts(".entry .what")[0].startswith("system")


def test_a_saved_page_opens_without_a_server_and_says_what_it_left_out(
    browser: Browser, inspector: Inspector, session_id: str, tmp_path: Path
) -> None:
    for is_redacted in (False, True):
        path = tmp_path / f"{is_redacted}.html"
        path.write_text(save_session(inspector, session_id, is_redacted=is_redacted), "utf-8")
        page = browser.open(path.as_uri())
        opened = View(page)
        opened.settle()
        opened.wait("document.querySelector('.picture .sum')")
        assert "instead of" in opened.text(".picture .sum")
        for name in ("requests", "compare", "whatif", "request"):
            opened.click(f"[data-view={name}]")
        assert any("Redacted: " in words for words in opened.texts("#left-out")) == is_redacted
        assert (page.complaints, page.requests) == ([], [])


@pytest.mark.parametrize("look", [("light", 1440), ("dark", PHONE)])
def test_axe_finds_nothing_in_any_view_of_a_recorded_session(
    browser: Browser, server: PageServer, session_id: str, calls: list[dict[str, Any]], look: tuple[str, int]
) -> None:
    scheme, width = look
    opened, _ = open_page(browser, server, scheme=scheme, width=width)
    opened.page.evaluate(f"{AXE}; void 0")
    recalled = next(call["number"] for call in calls if call["recalled"])
    lost = next(call["number"] for call in calls if call["loss"] and not call["cut"])
    addresses = {
        "entries": f"#/s/{session_id}/r/{recalled}",
        "raw": f"#/s/{session_id}/r/{recalled}?show=raw",
        "answer": f"#/s/{session_id}/r/{recalled}?show=answer",
        "requests": f"#/s/{session_id}/r/{recalled}?view=requests",
        "compare": f"#/s/{session_id}/r/{lost}?view=compare",
        "search": "#/?search=courier",
    }
    problems = {}
    for name, address in addresses.items():
        opened.page.evaluate(f"void (window.location.hash = {json.dumps(address)})")
        opened.settle()
        problems[name] = find_problems(opened)
    assert {name: each for name, each in problems.items() if each} == {}


# A session that is running.


class LiveTalk:
    """A conversation in a store that grows while the page is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.turns: list[dict[str, Any]] = []
        self.count = 0
        self._writer = RecordWriter()

    def say(self, text: str, *, read: int, tokens: int = 10_000) -> None:
        self.turns.append({"role": "user", "content": text})
        body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": self.turns}
        now = time.time()
        sent_id = f"r{self.count}"
        self.count += 1
        self._writer.add_sent(
            SentRequest(
                id=sent_id,
                at=now,
                dialect="anthropic",
                model="claude-sonnet-4-5",
                tokens=tokens,
                window=20_000,
            ),
            body=msgspec.json.encode(body),
        )
        usage = Usage(input=tokens, cached=read, written=tokens - read, output=10)
        answer = b'{"type":"message","role":"assistant","content":[{"type":"text","text":"Yes."}]}'
        self._writer.add_answer(
            Answered(id=sent_id, at=now, status=200, last=0.5, content_type="application/json", usage=usage),
            body=answer,
        )
        self.turns.append({"role": "assistant", "content": "Yes."})

        async def save() -> None:
            async with open_store(str(self.path)) as store:
                where = conversation_place(WORKSPACE, "running")
                head = (await store.read(where, last=0)).head
                state = ConversationState(
                    dialect="anthropic", model="claude-sonnet-4-5", keep="all", requests=self.count
                )
                await store.append(where, self._writer.encode(), was=head.state, state=state.encode())

        # Playwright has an event loop in this thread, so the store gets one in another.
        with ThreadPoolExecutor(1) as threads:
            threads.submit(anyio.run, save).result()
        self._writer.saved()


def test_new_requests_appear_without_moving_what_one_reads(browser: Browser, tmp_path: Path) -> None:
    talk = LiveTalk(tmp_path / "store.db")
    for number in range(3):
        talk.say(f"Question {number} " + HOSTILE[number], read=9_000 if number else 0)
    inspector = open_inspector(StoreAsker(talk.path), WORKSPACE, pause=0.0)
    with ThreadPoolExecutor(1) as threads:
        session_id = threads.submit(inspector.sessions.summaries).result()[0].id
    with PageServer(inspector).running() as server:
        opened, page = open_page(browser, server)
        opened.go(f"#/s/{session_id}/r/2")
        opened.wait("document.querySelector('#follow')")
        assert "live" in opened.text(".live-line")
        opened.page.evaluate("void (document.querySelector('.entries').dataset.mine = 'yes')")
        opened.page.evaluate("void window.scrollTo(0, 120)")
        before = opened.page.evaluate("document.querySelector('.entries').getBoundingClientRect().top")
        talk.say("One more.", read=0, tokens=19_500)
        opened.wait("document.querySelector('#newer')")
        assert "1 newer request" in opened.text("#newer")
        assert opened.page.evaluate("document.querySelector('.entries').dataset.mine") == "yes"
        assert (
            opened.page.evaluate("document.querySelector('.entries').getBoundingClientRect().top") == before
        )
        assert opened.text(".view h2").startswith("Request 3 ")
        opened.click("#follow")
        opened.wait("document.querySelector('.view h2')?.textContent.startsWith('Request 4 ')")
        talk.say("And another.", read=9_000)
        opened.wait("document.querySelector('.view h2')?.textContent.startsWith('Request 5 ')")
        assert opened.page.evaluate("window.harm === undefined")
        assert page.complaints == []


def test_an_old_session_is_not_called_live(view: View, session_id: str) -> None:
    view.go(f"#/s/{session_id}")
    assert view.text(".live-line") == ""
    view.go("#/")
    assert view.texts(".sessions .live") == []
