from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest
from markupsafe import Markup

from lamina.replay.html import render_page
from lamina.replay.html.markup import join, tag
from lamina.replay.html.plots import Series, draw_lines, draw_stack
from lamina.replay.html.scale import PlotScale, round_step, round_up, short_figure, spread_apart
from lamina.replay.values import ReplayAccount
from tests.replay.accounts import HOSTILE, POLICIES, account


class Seen(HTMLParser):
    """Elements that are never closed or closed twice, names of all elements, and the text between them."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_element_is_closed_and_only_one_script_is_there() -> None:
    seen = Seen(render_page(account()))
    assert seen.open == []
    assert seen.names.count("script") == 1
    assert "img" not in seen.names
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
    assert not [name for name, _ in seen.attributes if name in ("src", "href")]


def test_a_hostile_session_id_stays_text() -> None:
    written = render_page(account())
    assert HOSTILE in Seen(written).text
    assert "<img src=x" not in written


def test_a_page_of_nothing_is_a_page() -> None:
    written = render_page(ReplayAccount())
    assert Seen(written).open == []
    assert "The records hold no usage" in written


def test_every_drawing_has_a_title_and_a_table() -> None:
    seen = Seen(render_page(account()))
    labels = [value for name, value in seen.attributes if name == "aria-label"]
    drawn = [value for name, value in seen.attributes if name == "data-plot"]
    tables = [value for name, value in seen.attributes if name == "data-table"]
    assert seen.names.count("svg") == len(drawn) == 1 + 2 * 3
    assert len(labels) >= len(drawn)
    assert tables.count("spent") == tables.count("layers") == 3
    assert tables.count("totals") == 1


def test_without_calls_kept_there_are_no_courses() -> None:
    whole = account()
    bare = [msgspec.structs.replace(each, points=()) for each in whole.outcomes]
    written = render_page(msgspec.structs.replace(whole, outcomes=tuple(bare)))
    assert "Over the session" not in written
    assert "Session by session" in written


def test_the_page_forbids_everything_but_itself() -> None:
    found = re.search(r'Content-Security-Policy" content="([^"]+)"', render_page(account()))
    assert found
    assert found[1].startswith("default-src &#39;none&#39;; ")
    assert "unsafe" not in found[1]


def test_the_same_account_gives_the_same_page() -> None:
    assert render_page(account(3)) == render_page(account(3)) != render_page(account(4))


def test_text_is_escaped_unless_it_is_markup() -> None:
    inner = tag("b", "<i>")
    assert inner == "<b>&lt;i&gt;</b>"
    assert tag("p", inner, "&", title='"', open=False, data_x=None) == (
        '<p title="&#34;"><b>&lt;i&gt;</b>&amp;</p>'
    )
    assert isinstance(join([inner, "<"]), Markup)
    assert inner + "<" == "<b>&lt;i&gt;</b>&lt;"


def test_the_money_comes_first_with_whose_prices_they_are() -> None:
    text = " ".join(Seen(render_page(account())).text.split())
    cost, lamina, lost = (
        text.index(words) for words in ("they cost", "under lamina", "lost to cache misses")
    )
    assert cost < lamina < lost < text.index("What each policy would have cost")
    assert "list prices in US dollars, as lamina's table of models had them on 2026-11-09" in text


def test_a_layer_has_one_colour_in_every_drawing() -> None:
    whole = account()
    fewer = []
    for outcome in whole.outcomes:
        points = [msgspec.structs.replace(point, layers={"steps": 9}) for point in outcome.points]
        fewer.append(msgspec.structs.replace(outcome, points=tuple(points)))
    style = re.compile(r'<text [^>]*class="name ([a-z0-9]+)">steps</text>')
    found = set(style.findall(render_page(whole)))
    found |= set(style.findall(render_page(msgspec.structs.replace(whole, outcomes=tuple(fewer)))))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("size", "step"), [(0, 1), (0.3, 0.5), (1, 1), (1.1, 2), (2.2, 2.5), (7, 10), (1234, 2000)]
)
def test_steps_are_round(size: float, step: float) -> None:
    assert round_step(size) == pytest.approx(step)


def test_axes_hold_their_figures_and_are_no_longer_than_needed() -> None:
    for highest in (0.01, 3, 99, 140_000, 1_234_567):
        end = round_up(highest)
        assert highest <= end <= 1.5 * highest
        assert PlotScale(0, end, 0, 100).ticks()[-1] == pytest.approx(end)


def test_short_figures() -> None:
    assert [short_figure(figure) for figure in (0, 12, 1_500, 2_000_000, 3.5e9)] == [
        "0",
        "12",
        "1.5k",
        "2M",
        "3.5G",
    ]


def test_labels_keep_their_order_and_their_distance() -> None:
    moved = spread_apart([50, 49, 10, 51, 52], least=13, end=60)
    ordered = sorted(zip([50, 49, 10, 51, 52], moved, strict=True))
    assert all(two - one >= 12.99 for (_, one), (_, two) in pairwise(ordered))
    assert max(moved) <= 60


def test_a_higher_figure_is_drawn_higher_and_a_stack_adds_up() -> None:
    drawn = draw_lines("x", [Series("a", "c0", [0, 10])])
    path = re.search(r' d="M([\d.]+) ([\d.]+) L([\d.]+) ([\d.]+)"', drawn)
    assert path
    assert float(path[3]) > float(path[1])
    assert float(path[4]) < float(path[2])
    stacked = draw_stack("x", [Series("a", "c0", [10, 10]), Series("b", "c1", [10, 10])])
    tops = [float(top) for top in re.findall(r' d="M[\d.]+ ([\d.]+)', stacked)]
    zero = float(re.findall(r"L([\d.]+) ([\d.]+) Z", stacked)[0][1])
    assert zero - tops[1] == pytest.approx(2 * (zero - tops[0]), abs=0.3)


def test_policies_are_named_in_the_drawing() -> None:
    written = render_page(account())
    assert all(f'data-policy="{policy}"' in written for policy in POLICIES)
