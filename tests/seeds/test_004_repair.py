"""Source system 004: repairs before trimming, and its older ways to shorten (S4-50 to S4-56, S4-63)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from lamina import Budget, Form, Options, Role, Segment, build
from lamina.core import RFC, Move, Order, OrderView, Part, Text, ToolCall, ToolResult, Wording
from lamina.core.orders import Batch
from lamina.core.text.tags import strip_tags
from lamina.core.values import Digest
from lamina.segments import assistant, result, user
from tests.seeds import rfc
from tests.seeds.rfc import bodies, call, messages, texts, trim, untrimmed

WINDOW, ALWAYS = 1_000, 0.001
"""A window and a threshold of one token in it: its unconditional reducers, as a budget."""


def roles(log: list[Segment]) -> list[str]:
    return [message[0].role.value for message in messages(untrimmed(log))]


def whys(log: list[Segment]) -> list[str]:
    """Why each segment that is not sent is not."""
    return [e.why for e in untrimmed(log).entries if e.form is Form.OMITTED]


def test_s4_50_results_of_one_turn_merge_in_order() -> None:
    log = [*call("call_1", "call_2"), result("Result 1", id="call_1"), result("Result 2", id="call_2")]
    assert roles(log) == ["assistant", "tool"]
    merged = [p for p in bodies(untrimmed(log))[1] if isinstance(p, ToolResult)]
    assert [(p.id, p.content) for p in merged] == [
        ("call_1", (Text("Result 1"),)),
        ("call_2", (Text("Result 2"),)),
    ]


def test_s4_51_of_two_results_for_one_call_the_last_stands() -> None:
    log = [*call("tc_1"), result("old_result", id="tc_1"), result("new_result", id="tc_1")]
    assert texts(untrimmed(log))[1:] == ["new_result"]
    assert whys(log) == ["duplicate result: a later one stands"]


def test_s4_52_a_dangling_call_and_its_late_result_are_left_out() -> None:
    log = [*call("tc_1", text="let me check"), user("new input"), result("late", id="tc_1")]
    assert roles(log) == ["assistant", "user"]
    assert bodies(untrimmed(log)) == [[Text("let me check")], [Text("new input")]]
    assert whys(log) == ["call without a result", "result without its call"]


def test_s4_53_an_orphan_is_left_out_and_the_valid_pair_after_it_stays() -> None:
    log = [result("orphan", id="tc_missing"), *call("tc_1"), result("ok", id="tc_1")]
    assert roles(log) == ["assistant", "tool"]
    assert texts(untrimmed(log))[1] == "ok"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<checkpoint_id>abc-123</checkpoint_id>\nHello, world!", "\nHello, world!"),
        ("  indented <checkpoint_id>\n1\n</checkpoint_id> tail \n", "  indented  tail \n"),
        ("<checkpoint_id>a</checkpoint_id>x<checkpoint_id>b</checkpoint_id>", "x"),
        ("no tag, spaces kept  ", "no tag, spaces kept  "),
    ],
)
def test_s4_54_tags_go_and_everything_else_stays_exact(text: str, left: str) -> None:
    """Upstream also strips the white space around every message on every request."""
    assert texts(untrimmed([user(text)])) == [left]


def test_s4_54_tags_go_from_results_too() -> None:
    log = [*call("tc_1"), result("<checkpoint_id>a</checkpoint_id> done", id="tc_1")]
    assert texts(untrimmed(log))[1] == " done"


def test_s4_54_removing_a_tag_does_not_leave_another() -> None:
    assert (
        strip_tags("<checkpo<checkpoint_id>a</checkpoint_id>int_id>b</checkpoint_id>c", ["checkpoint_id"])
        == "c"
    )


@pytest.mark.parametrize(
    ("hostile", "left"),
    [
        ("<checkpoint_id>" * 70_000, "<checkpoint_id>" * 70_000),
        ("</checkpoint_id>" * 70_000, "</checkpoint_id>" * 70_000),
        ("<checkpoint_id>" * 70_000 + "</checkpoint_id>", ""),
        ("<" * 1_000_000, "<" * 1_000_000),
        ("<checkpoint_id>a</checkpoint_id>b" * 30_000, "b" * 30_000),
    ],
    ids=["unclosed", "unopened", "closed once", "angles", "many"],
)
def test_s4_54_a_megabyte_of_hostile_tags(hostile: str, left: str) -> None:
    """No time is asserted: a pass that is not linear takes hours over these."""
    assert strip_tags(hostile, ["checkpoint_id"]) == left


def test_s4_54_deep_nesting_ends_and_only_shortens() -> None:
    depth = 20_000
    text = "<checkpo" * depth + "<checkpoint_id>a</checkpoint_id>" + "int_id>a</checkpoint_id>" * depth
    assert len(strip_tags(text, ["checkpoint_id"])) < len(text)


def test_s4_54_a_stripped_tag_does_not_come_back_with_a_lower_form() -> None:
    reply = assistant("<checkpoint_id>a</checkpoint_id> " + "b" * 3_000)
    log = [user("q"), reply, user("r"), assistant("short")]
    options = Options(repairs=rfc.REPAIRS)
    fitted = build(log, budget=Budget(window=500, reserve=0, keep_last=1), counter=RFC, options=options)
    assert "checkpoint_id" not in texts(fitted)[1]


TRUNCATED = "[assistant message truncated]"


def truncating(segment: Segment, form: Form, _content: Digest, _limit: int) -> tuple[Part, ...]:
    return segment.parts if form is Form.FULL else (Text(TRUNCATED),)


def old_replies(view: OrderView) -> Iterator[Batch]:
    """Every reply before the spared ones, whatever the size of the request."""
    yield tuple(
        Move(i, Form.STUB, "old reply")
        for i in view.free()
        if view.entries[i].role is Role.ASSISTANT and isinstance(view.entries[i].parts[0], Text)
    )


TRUNCATING = Options(
    wording=Wording(handles=False, words={"assistant": truncating}), order=old_replies
)  # fmt: skip


def truncated(*replies: str) -> list[str]:
    log = [assistant(reply) for reply in replies]
    return texts(trim(log, WINDOW, keep=2, threshold=ALWAYS, options=TRUNCATING))


def test_s4_55_old_replies_are_truncated_and_the_last_two_stay() -> None:
    older = "an older reply that is longer than what replaces it"
    assert truncated(older, "newer", "latest") == [TRUNCATED, "newer", "latest"]


def test_s4_55_a_reply_shorter_than_the_placeholder_stays() -> None:
    """Upstream replaces "older" as well, which makes the request larger."""
    assert truncated("older", "newer", "latest") == ["older", "newer", "latest"]


def long_action_messages(*, limit: int, keep: int) -> Order:
    """The words beside a call, where they are longer than `limit` and not of the last `keep` actions."""

    def order(view: OrderView) -> Iterator[Batch]:
        entries = view.entries
        actions = [i for i in range(len(entries) - 1) if _is_action(entries[i].parts, entries[i + 1].parts)]
        old = actions[: max(len(actions) - keep, 0)]
        yield tuple(
            Move(i, Form.OMITTED, "long message of an old action")
            for i in old
            if len(texts_of(entries[i].parts)) > limit and i not in view.untouchable
        )

    return order


def _is_action(parts: tuple[Part, ...], after: tuple[Part, ...]) -> bool:
    return all(isinstance(p, Text) for p in parts) and any(isinstance(p, ToolCall) for p in after)


def texts_of(parts: tuple[Part, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def actions(*items: str) -> list[Segment]:
    """Actions with these words; a leading `!` makes a plain message of the user instead."""
    log: list[Segment] = []
    for i, item in enumerate(items):
        if item.startswith("!"):
            log.append(user(item))
        else:
            log += [*call(f"action_{i}", text=item), result("done", id=f"action_{i}")]
    return [*log, user("next")]


@pytest.mark.parametrize(
    ("items", "keep", "dropped"),
    [
        (["small", "x" * 100, "y" * 50, "!" + "m" * 40, "z" * 10], 0, [1, 2]),
        (["x" * 100, "y" * 100, "!test message", "z" * 100, "w" * 10], 2, [0, 1]),
        (["a" * 100, "b" * 100, "c" * 100, "d" * 100, "e" * 100], 3, [0, 1]),
        (["a" * 10, "b" * 10, "c" * 10], 1, []),
        (["a" * 100, "b" * 100], 5, []),
        (["!" + "m" * 100, "!" + "n" * 100], 0, []),
    ],
    ids=["none kept", "two kept", "off by one", "all short", "more than there are", "no actions"],
)
def test_s4_56_long_messages_of_old_actions_go_and_their_calls_stay(
    items: list[str], keep: int, dropped: list[int]
) -> None:
    log = actions(*items)
    options = Options(order=long_action_messages(limit=20, keep=keep))
    fitted = trim(log, WINDOW, threshold=ALWAYS, options=options)
    gone = [texts_of(e.segment.parts) for e in fitted.entries if e.form is Form.OMITTED]
    assert gone == [items[i] for i in dropped]
    calls = [p for parts in bodies(fitted) for p in parts if isinstance(p, ToolCall | ToolResult)]
    assert len(calls) == 2 * sum(not item.startswith("!") for item in items)


def test_s4_56_without_history_nothing_happens() -> None:
    options = Options(order=long_action_messages(limit=20, keep=5))
    assert trim([], WINDOW, threshold=ALWAYS, options=options).entries == ()


def in_user_message(text: str) -> Segment:
    """A result as a block of a user's message."""
    return msgspec.structs.replace(result(text, id="r1"), role=Role.USER)


def test_s4_63_duplicates_go_and_the_text_beside_them_keeps_its_order() -> None:
    log = [*call("r1"), in_user_message("first"), in_user_message("second"), user("hello"), user("world")]
    assert texts(untrimmed(log))[1:] == ["second\nhello\nworld"]


def test_s4_63_text_before_the_results_ends_their_place() -> None:
    """Upstream keeps [hello, second, world]; no call is answered there, so the results have none."""
    log = [*call("r1"), user("hello"), in_user_message("first"), in_user_message("second"), user("world")]
    assert texts(untrimmed(log)) == ["Thinking...", "hello\nworld"]
    assert whys(log) == ["call without a result", "result without its call", "result without its call"]
