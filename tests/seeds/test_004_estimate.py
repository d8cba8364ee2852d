"""Source system 004: what its estimate says, and when nothing happens (S4-01 to S4-08)."""

from __future__ import annotations

import pytest

from lamina import Budget, Ledger, RequestHead, Segment
from lamina.core import RFC, Image, Part, Text, ToolResult
from lamina.core.cut_target import derive_limits
from lamina.core.tokens import part_cost, scale_tokens
from lamina.segments import assistant, user
from tests.seeds import rfc
from tests.seeds.rfc import texts, trim, trim_with_headroom, trimmed, turns, untrimmed


def one_message(*parts: Part) -> int:
    return scale_tokens(
        RFC.framing.message + sum(RFC.framing.part + part_cost(p, RFC) for p in parts), RFC, None
    )


@pytest.mark.parametrize(
    ("log", "tokens"),
    [
        ([user("Hello world")], 13),
        ([user("Hello"), assistant("World")], 21),
        ([], 0),
    ],
)
def test_s4_01_estimate_of_plain_messages(log: list[Segment], tokens: int) -> None:
    assert untrimmed(log).tokens == tokens


def test_s4_01_estimate_of_a_tool_result() -> None:
    assert one_message(ToolResult(id="tc_1", content=(Text("A" * 400),))) == 141


def test_s4_02_estimate_of_text_image_and_result_in_one_message() -> None:
    result = ToolResult(id="tc_1", content=(Text("done"),))
    assert one_message(Text("hello"), Image(url="https://example.com/a.png"), result) == 2131


def test_s4_03_multi_byte_text_is_counted_in_bytes() -> None:
    long = "🚀✨漢字🙂" * 200
    log = [user("שלום 🌍 здравствуй"), assistant(long), user("tail"), assistant("recent")]
    assert RFC.count(long) == -(-2 * len(long.encode()) // 7)
    assert trimmed(trim_with_headroom(log, 120, output=64, keep=1)) == [1]


def test_s4_04_overhead_of_fifty_tools() -> None:
    log = turns(1, "x*100", "y*100")
    with_tools = untrimmed(log, tools=rfc.BIG_TOOLS)
    assert with_tools.account.tools == 12_800
    assert with_tools.tokens == untrimmed(log).tokens + 12_800, "definitions are added after the margin"


@pytest.mark.parametrize(
    ("log", "keep"),
    [
        (turns(1, "Hello", "Hi there"), 2),
        ([*turns(1, "hello", "hi"), *turns(1, "how are you", "good")], 10),
    ],
    ids=["s4_05", "s4_06"],
)
def test_s4_05_06_under_the_threshold_nothing_is_trimmed_or_remembered(log: list[Segment], keep: int) -> None:
    fitted = trim(log, 200_000, keep=keep, ledger=Ledger())
    assert fitted.entries == untrimmed(log).entries
    assert (fitted.ledger.lines, fitted.ledger.cuts, fitted.cut) == ({}, (), None)


def test_s4_07_under_the_threshold_nothing_is_remembered_with_headroom_either() -> None:
    log = [*turns(1, "Hello", "Hi there"), user("How are you?")]
    fitted = trim_with_headroom(log, 200_000, output=4096)
    assert texts(fitted) == ["Hello", "Hi there", "How are you?"]
    assert (fitted.ledger.lines, fitted.ledger.cuts) == ({}, ())


def test_s4_08_nothing_in_nothing_out() -> None:
    fitted = trim_with_headroom([], 200_000, output=4096)
    assert (fitted.entries, fitted.tokens) == ((), 0)


@pytest.mark.parametrize(
    ("window", "threshold"), [(299, 239), (312, 249), (668, 534), (568, 454), (268, 214), (100, 80)]
)
def test_fact_4_the_threshold_is_a_whole_number_rounded_down(window: int, threshold: int) -> None:
    assert (
        derive_limits(Budget(window=window, reserve=0, trigger=0.8), RequestHead(), ()).trigger == threshold
    )
