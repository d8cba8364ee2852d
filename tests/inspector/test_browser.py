"""The inspector in a real browser: its answers are those of `explain`, and nothing on the page does harm.

Where the system has a browser, the pages are served. Where there is only the Chromium of a package, which
opens files alone, the same questions are put to the page that `lamina inspect --html` writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from lamina.cli.inspect import DemoSource
from lamina.core import Manifest
from lamina.core.explanation import explain
from lamina.gateway.inspection import PageServer
from lamina.inspector import Inspector, Sessions, comparisons, request_views, views
from lamina.inspector.one_file import write_page
from lamina.inspector.sent_sessions import SentSession
from tests.browser.browser import Browser, Page, SystemBrowser
from tests.browser.browser import browser as start_browser
from tests.inspector.recorded import make_reading_turns, open_inspector, write_agent_log, write_session

MOST_CLICKS = 2
SECONDS = 60
HOSTILE = (
    "<script>window.harm = 1</script>",
    "</script></style></textarea></title><script>window.harm = 2</script>",
    "<img src=x onerror='window.harm = 3'><svg onload='window.harm = 4'>",
    "javascript:window.harm=5 {{constructor.constructor('window.harm=6')()}}",
    "\u202eesrever \u2066isolate\u2069 zero\u200bwidth\u200d\ufeff \x1b[31m",
    "a lone surrogate \ud800 and a null \x00.",
)
LONG_LINE = "word " * 1_000_000


class View:
    """An open page, and how many clicks and searches somebody made on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def go(self, address: str) -> None:
        """As if the address had been typed. The count begins anew."""
        self.page.evaluate(f"void (window.location.hash = {json.dumps(address)})")
        self.settle()
        self.clicks = 0

    def click(self, selector: str) -> None:
        self.wait(f"document.querySelector({json.dumps(selector)})")
        self.page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self.clicks += 1
        self.settle()

    def search(self, selector: str, text: str) -> None:
        """One search: the text and the button behind it."""
        self.wait(f"document.querySelector({json.dumps(selector)})")
        self.page.evaluate(
            f"void (document.querySelector({json.dumps(selector)}).value = {json.dumps(text)})"
        )
        self.click(f"{selector} + button")

    def settle(self) -> None:
        self.wait(
            "!document.querySelector('main').hasAttribute('aria-busy') && document.querySelector('main *')"
        )

    def wait(self, expression: str) -> Any:
        """The value of an expression, as soon as it is true.

        A click or a new address queues its work before this is asked, so the first look comes after that
        work has begun, without a pause. The pause at the end lets the page draw its next frame.
        """
        return self.page.evaluate(
            f"""new Promise((done, fail) => {{
              const end = Date.now() + {SECONDS * 1000};
              const look = () => {{
                const value = {expression};
                if (value) setTimeout(() => done(value === true || value.nodeType ? true : value), 20);
                else if (Date.now() > end) fail(new Error("it never became true"));
                else setTimeout(look, 10);
              }};
              setTimeout(look);
            }})"""
        )

    def text(self, selector: str) -> str:
        self.wait(f"document.querySelector({json.dumps(selector)})")
        return str(self.page.evaluate(f"document.querySelector({json.dumps(selector)}).textContent"))

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.textContent)"
        )
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    """A session that lamina recorded, with cuts, and the log of another client."""
    path = write_session(tmp_path_factory.mktemp("sessions"), turns=2)
    return Inspector(Sessions([str(path)], [DemoSource(7)]))


@pytest.fixture(scope="module")
def session_id(inspector: Inspector) -> str:
    demos = [each for each in inspector.sessions.summaries() if each.source == "demo"]
    return next(each.id for each in demos if not each.parent)


@pytest.fixture(scope="module")
def log_id(inspector: Inspector) -> str:
    return next(each.id for each in inspector.sessions.summaries() if each.source != "demo")


@pytest.fixture(scope="module")
def view(browser: Browser, inspector: Inspector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """One page for all tests that only look at it: served, or as one file."""
    with ExitStack() as stack:
        yield open_view(browser, inspector, tmp_path_factory.mktemp("page"), stack)


def open_view(browser: Browser, inspector: Inspector, folder: Path, stack: ExitStack) -> View:
    if isinstance(browser, SystemBrowser):
        server = stack.enter_context(PageServer(inspector).running())
        return View(browser.open(server.address))
    path = folder / "page.html"
    path.write_text(write_page(inspector), "utf-8", errors="surrogatepass")
    return View(browser.open(path.as_uri()))


@pytest.fixture(scope="module")
def built(inspector: Inspector, session_id: str) -> SentSession:
    return inspector.open(session_id)


def explain_call(inspector: Inspector, built: SentSession, number: int) -> Manifest:
    return explain(views.read_envelope(inspector.read(built, number)))


def whole(words: str) -> int:
    """1,234 as a number."""
    return int(words.replace(",", ""))


# The six questions.


def test_what_is_largest(view: View, inspector: Inspector, built: SentSession, session_id: str) -> None:
    last = len(built.calls) - 1
    view.go(f"#/s/{session_id}/r/{last}")
    amounts = [whole(words) for words in view.texts("#largest .num")]
    rows = explain_call(inspector, built, last).rows
    assert amounts == sorted((row.tokens for row in rows), reverse=True)[:8]
    assert view.clicks <= MOST_CLICKS


def test_why_a_request_cost_more(
    view: View, built: SentSession, inspector: Inspector, session_id: str
) -> None:
    number = next(call.number for call in built.calls if call.cut)
    view.go(f"#/s/{session_id}/r/{number}")
    view.click("#why-cost")
    answer = comparisons.compare_requests(inspector, session_id, number - 1, number)
    assert answer["sentence"].lower().rstrip(".") in view.text("#verdict .sentence").lower()
    costs = view.text("#cost-change")
    for call in built.calls[number - 1 : number + 1]:
        assert call.dollars is not None
        assert f"${call.dollars:.4f}" in costs or f"${call.dollars:.2f}" in costs
    assert view.clicks <= MOST_CLICKS


def test_what_the_model_did_not_see(
    view: View, inspector: Inspector, built: SentSession, session_id: str
) -> None:
    last = len(built.calls) - 1
    view.go(f"#/s/{session_id}/r/{last}")
    envelope = views.read_envelope(inspector.read(built, last))
    lowered = [entry for entry in envelope.entries if entry.form.name != "FULL"]
    lowered = [entry for entry in lowered if entry.segment.origin != "lamina"]
    assert len(view.texts("#unseen li")) == min(len(lowered), 8)
    view.click("#unseen .link")
    view.click(".tabs button:nth-child(4)")
    reason = view.text(".why-pane dd")
    assert reason in {row.why for row in explain(envelope).rows}
    assert view.clicks <= MOST_CLICKS


def test_what_each_working_window_would_have_cost(
    view: View, inspector: Inspector, log_id: str, session_id: str
) -> None:
    for each, is_paid in ((log_id, False), (session_id, True)):
        view.go(f"#/s/{each}")
        view.click("[data-view=whatif]")
        view.wait("document.querySelector('#alternatives')")
        saving = views.show_alternatives(inspector, each)["saving"]
        heads = view.texts("#alternatives tbody code")
        assert heads == [row["flag"] for row in saving["rows"]]
        assert f"${saving['rows'][0]['dollars']:.2f}" in view.text("#alternatives tbody")
        assert bool(view.texts("#alternatives .reported")) == is_paid
        assert view.clicks <= MOST_CLICKS


def test_the_first_page_says_what_the_newest_session_saved(view: View, inspector: Inspector) -> None:
    view.go("#/")
    newest = next(each for each in inspector.sessions.summaries() if not each.parent)
    totals = views.show_session(inspector, newest.id)["totals"]
    assert view.text(".picture .sum").startswith(f"${totals['dollars']:.2f}")
    assert f"{totals['calls']} requests" in view.text(".newest")
    view.go(f"#/s/{max(inspector.sessions.summaries(), key=lambda each: each.calls).id}")
    assert "instead of" in view.text(".picture .sum")
    assert view.page.evaluate("document.querySelectorAll('.picture .whole').length") == 1


# What the page does besides.


def test_every_view_opens_without_a_complaint_and_nothing_leaves(
    view: View, browser: Browser, session_id: str
) -> None:
    for name in ("request", "requests", "compare", "whatif"):
        view.go(f"#/s/{session_id}")
        view.click(f"[data-view={name}]")
        assert view.text(".view h2")
    view.go("#/")
    assert view.page.complaints == []
    if isinstance(browser, SystemBrowser):
        origin = view.page.evaluate("location.origin")
        assert all(url.startswith(f"{origin}/") for url in view.page.requests)
    else:
        assert view.page.requests == []


def test_keys_go_through_the_requests(view: View, built: SentSession, session_id: str) -> None:
    last = len(built.calls)
    view.go(f"#/s/{session_id}/r/{last - 1}")
    press = "document.dispatchEvent(new window.KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
    press = press.replace("document.dispatch", "document.body.dispatch")
    view.page.evaluate(press.format(key="k"))
    view.wait(f"document.querySelector('.view h2').textContent.startsWith('Request {last - 1} ')")
    view.page.evaluate(press.format(key="?"))
    view.wait("document.querySelector('dialog').open")
    view.page.evaluate("document.querySelector('dialog').close()")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    extra: list[dict[str, Any]] = []
    for text in (*HOSTILE, LONG_LINE):
        extra += [{"role": "user", "content": text}, {"role": "assistant", "content": text[:200]}]
    folder = tmp_path_factory.mktemp("hostile")
    return open_inspector(write_session(folder, turns=1, extra=extra, name="<b onclick=harm()>x</b>"))


def test_hostile_content_is_shown_and_does_nothing(
    browser: Browser, hostile: Inspector, tmp_path: Path
) -> None:
    session_id = hostile.sessions.summaries()[0].id
    with ExitStack() as stack:
        opened = open_view(browser, hostile, tmp_path, stack)
        last = len(hostile.open(session_id).calls) - 1
        shown = request_views.show_request(hostile, session_id, last)
        prompts = [entry for entry in shown["entries"] if entry["kind"] == "user"][-len(HOSTILE) - 1 :]
        assert len(prompts) == len(HOSTILE) + 1
        for entry, text in zip(prompts, (*HOSTILE, LONG_LINE), strict=True):
            ref = quote(entry["ref"], safe="")
            opened.page.evaluate(f"void (window.location.hash = '#/s/{session_id}/r/{last}/seg/{ref}')")
            opened.wait(f"window.location.hash.includes('{ref}') && document.querySelector('.pane-body pre')")
            opened.settle()
            sent = opened.text(".pane-body pre")
            assert sent.replace("\ufffd", "?")[:200] == text.replace("\ud800", "?")[:200].replace(
                "\ufffd", "?"
            )
        opened.click("[data-view=compare]")
        assert opened.page.evaluate("window.harm === undefined")
        assert (
            opened.page.evaluate("document.querySelectorAll('main script, main img, svg[onload]').length")
            == 0
        )
        assert opened.page.complaints == []


def test_logs_without_system_text_say_so(browser: Browser, tmp_path: Path) -> None:
    inspector = open_inspector(write_agent_log(tmp_path))
    parent = next(summary for summary in inspector.sessions.summaries() if not summary.parent)
    with ExitStack() as stack:
        opened = open_view(browser, inspector, tmp_path, stack)
        opened.go(f"#/s/{parent.id}")
        assert "not recorded, about 18K tokens" in opened.text(".session-head")
        assert opened.page.complaints == []


AXE = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def server(inspector: Inspector) -> Iterator[PageServer]:
    with PageServer(inspector).running() as running:
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_for_people_who_use_other_means(
    browser: Browser, server: PageServer, session_id: str, scheme: str
) -> None:
    """Every rule of axe, in every view, in both themes."""
    if not isinstance(browser, SystemBrowser):
        pytest.skip("the browser of the package cannot be given another script")
    opened = View(browser.open(server.address, scheme=scheme))
    opened.page.evaluate(f"{AXE}; void 0")
    problems = {"sessions": find_problems(opened)}
    opened.go(f"#/s/{session_id}")
    opened.click("#unseen .link")
    opened.wait("document.querySelector('.pane-body')")
    problems["segment"] = find_problems(opened)
    for name in ("requests", "compare", "whatif"):
        opened.click(f"[data-view={name}]")
        problems[name] = find_problems(opened)
    opened.click("#help")
    problems["help"] = find_problems(opened)
    assert {name: each for name, each in problems.items() if each} == {}
    opened.page.evaluate("void (document.querySelector('dialog').innerHTML = '<p>hardly to be seen</p>')")
    opened.page.evaluate("void (document.querySelector('dialog p').style.color = 'rgb(128 128 128 / 30%)')")
    assert find_problems(opened) != []


def find_problems(opened: View) -> list[str]:
    """What axe calls serious or worse.

    Only violations leave the page: a list of everything that passed takes longer to hand over than to find.
    """
    violations = opened.page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(answer => answer.violations)"
    )
    problems = []
    for violation in violations:
        if violation["impact"] in ("serious", "critical"):
            places = [node["html"][:120] for node in violation["nodes"]]
            problems.append(f"{violation['id']}: {places[:3]}")
    return problems


def test_a_running_session_appears_and_the_page_outlives_its_server(browser: Browser, tmp_path: Path) -> None:
    if not isinstance(browser, SystemBrowser):
        pytest.skip("the browser of the package opens files alone")
    inspector = open_inspector(tmp_path)
    write_session(tmp_path, turns=1)
    with PageServer(inspector).running() as server:
        opened = View(browser.open(server.address))
        opened.wait("document.querySelectorAll('.sessions tbody tr').length === 1")
        write_session(tmp_path, seed=8, turns=1)
        opened.wait("document.querySelectorAll('.sessions tbody tr').length === 2")
        session_id = next(each.id for each in inspector.sessions.summaries() if each.name == "session-7")
        opened.go(f"#/s/{session_id}")
        before = opened.text(".session-head")
    opened.wait("!document.getElementById('offline').hidden")
    write_session(tmp_path, turns=1, extra=make_reading_turns(2))
    with PageServer(open_inspector(tmp_path), port=urlsplit(server.address).port or 0).running():
        opened.wait("document.getElementById('offline').hidden")
        opened.wait(f"document.querySelector('.session-head').textContent !== {json.dumps(before)}")
        calls = inspector.sessions.get(session_id).summary.calls
        assert f"{calls} requests" in opened.text(".session-head")
