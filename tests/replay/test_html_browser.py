"""The page in a real browser, opened from a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lamina.replay.account_table import account_json
from lamina.replay.html import render_page
from tests.browser.browser import Browser, Page
from tests.browser.browser import browser as start
from tests.replay.accounts import HOSTILE, account

ACCOUNT = account(windows=(32_000, 64_000))
ROWS = """[...document.querySelectorAll("section[data-rules] [data-table=totals] tbody tr")].map(row => ({
    rules: row.closest("section").dataset.rules, window: Number(row.closest("section").dataset.window),
    ...Object.fromEntries([...row.cells].map(cell => [cell.dataset.name,
        cell.dataset.value === undefined ? cell.textContent : cell.dataset.value === "" ? null :
        Number(cell.dataset.value)])) }))"""
CELLS = """(about, key) => [...document.querySelectorAll(`table[data-table=${about}] tbody tr`)].map(row =>
    Object.fromEntries([...row.cells].map(cell => [cell.dataset.name,
        cell.dataset.value === undefined ? cell.textContent : cell.dataset.value === "" ? null :
        Number(cell.dataset.value)])))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start() as opened:
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(ACCOUNT), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shown(browser: Browser, file: Path) -> Page:
    """One page for all tests that only look at it."""
    return browser.open(file.as_uri())


@pytest.fixture
def opened(browser: Browser, file: Path) -> Page:
    return browser.open(file.as_uri())


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """The figures as the JSON file has them."""
    found: dict[str, Any] = json.loads(json.dumps(account_json(ACCOUNT)))
    return found


def rows(opened: Page, about: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = opened.evaluate(f'({CELLS})("{about}")')
    return found


def test_no_complaint_and_no_request(shown: Page) -> None:
    assert shown.complaints == []
    assert shown.requests == []


def test_a_complaint_and_a_request_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(
        "<img src='missing.png'><script>console.error('bad'); undefined.x</script>"
    )
    bad = browser.open((tmp_path / "bad.html").as_uri())
    assert "bad" in str(bad.complaints)
    assert "TypeError" in str(bad.complaints)
    assert [url.rsplit("/", 1)[-1] for url in bad.requests] == ["missing.png"]


def test_figures_of_policies_equal_the_json(shown: Page, told: dict[str, Any]) -> None:
    rows_of_page = shown.evaluate(ROWS)
    assert [row["policy"] for row in rows_of_page].count("as it was") == 2
    setting = {"rules": "anthropic", "window": 32_000}
    assert rows_of_page[0] == {name: told["recorded"][name] for name in rows_of_page[0]} | setting
    simulated = [row for row in rows_of_page if row["policy"] != "as it was"]
    assert len(simulated) == len(told["totals"]) == 8
    for row, total in zip(simulated, told["totals"], strict=True):
        assert row == {name: total[name] for name in row}
        assert {"policy", "price", "equivalents", "recall", "over", "cached"} <= set(row)


def test_figures_of_the_records_equal_the_json(shown: Page, told: dict[str, Any]) -> None:
    for found, paid in zip(rows(shown, "paid"), told["paid"], strict=True):
        assert found == {name: paid[name] for name in found}
    reasons = shown.evaluate("[...document.querySelectorAll('.reasons li')].map(li => li.dataset.key)")
    assert reasons == [loss["why"] for loss in told["losses"]][:3]
    money = (
        "[...document.querySelectorAll('#answer dd')].map(dd => [dd.dataset.name, Number(dd.dataset.value)])"
    )
    assert shown.evaluate(money) == [[name, told["headline"][name]] for name in ("before", "own", "lost")]


def test_points_of_the_drawing_equal_the_json(shown: Page, told: dict[str, Any]) -> None:
    points = shown.evaluate(
        "[...document.querySelectorAll('[data-plot=frontier] g[data-policy]')].map(g =>"
        "[g.dataset.policy, Number(g.dataset.cost), Number(g.dataset.recall)])"
    )
    assert points == [[total["policy"], total["equivalents"], total["recall"]] for total in told["totals"]]


def test_sessions_and_courses_equal_the_json(shown: Page, told: dict[str, Any]) -> None:
    for row, session in zip(rows(shown, "sessions"), told["sessions"], strict=True):
        assert row["session"] == session["trace"]
        assert (row["recorded"], row["lamina"]) == (session["recorded"], session["own"])
        assert row["dearer"] == session["dearer"]
    course = shown.evaluate("document.querySelector('article').dataset.trace")
    spent = shown.evaluate(
        "[...document.querySelector('article').querySelectorAll('[data-table=spent] [data-name=lamina]')]"
        ".map(cell => Number(cell.dataset.value))"
    )
    [drawn] = [
        outcome
        for outcome in told["outcomes"]
        if (outcome["trace"], outcome["policy"], outcome["window"]) == (course, "lamina", 32_000)
    ]
    assert spent == [point["spent"] for point in drawn["points"]]


def test_a_table_is_sorted_by_its_heads(opened: Page) -> None:
    click = "document.querySelector('table[data-table=sessions] th:nth-child({}) button').click()"
    opened.evaluate(click.format(7))
    costs = [row["recorded"] for row in rows(opened, "sessions")]
    assert costs == sorted(costs, reverse=True)
    opened.evaluate(click.format(7))
    costs = [row["recorded"] for row in rows(opened, "sessions")]
    assert costs == sorted(costs)
    opened.evaluate(click.format(1))
    names = [row["session"] for row in rows(opened, "sessions")]
    assert names == [HOSTILE, "session-1", "session-2", "session-3"]
    assert (
        opened.evaluate("document.querySelectorAll('[data-table=sessions] [aria-sort=ascending]').length")
        == 1
    )
    assert opened.complaints == []


def test_a_session_with_markup_in_its_id_is_text(shown: Page) -> None:
    assert HOSTILE in [row["session"] for row in rows(shown, "sessions")]
    assert shown.evaluate("[document.scripts.length, document.images.length]") == [1, 0]


def lightness(opened: Page, part: str = "body", style: str = "backgroundColor") -> float:
    colour = opened.evaluate(f"getComputedStyle(document.querySelector('{part}')).{style}")
    return sum(map(int, colour.strip("rgb()").split(", "))) / 3


def test_light_and_dark_follow_the_reader_and_the_button(browser: Browser, file: Path) -> None:
    opened = browser.open(file.as_uri(), scheme="light")
    dark = browser.open(file.as_uri(), scheme="dark")
    assert lightness(opened) > 200 > lightness(opened, style="color")
    assert lightness(dark) < 60 < lightness(dark, style="color")
    dark.evaluate("document.getElementById('theme').click()")
    assert lightness(dark) > 200
    opened.evaluate("document.getElementById('theme').click()")
    assert lightness(opened) < 60
    line = "[data-plot=spent] path.own"
    assert lightness(opened, line, "stroke") > lightness(dark, line, "stroke")


def test_text_can_be_told_from_its_ground(browser: Browser, file: Path) -> None:
    for scheme in ("light", "dark"):
        opened = browser.open(file.as_uri(), scheme=scheme)
        ground = lightness(opened)
        for part, style in (
            ("p.note", "color"),
            ("td", "color"),
            ("svg .tick", "fill"),
            ("svg .name", "fill"),
        ):
            assert abs(lightness(opened, part, style) - ground) > 60, (scheme, part)


def test_nothing_is_wider_than_a_narrow_screen(opened: Page) -> None:
    for width in (360, 1_000):
        opened.evaluate(f"document.body.style.width = '{width}px'")
        assert opened.evaluate("document.body.scrollWidth") <= width + 40
