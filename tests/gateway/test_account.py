"""What a session cost and would have cost, from the lines of the gateway's log."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from lamina.conversations.costs import price_usage
from lamina.core import Cut
from lamina.core.entries import find_logged
from lamina.core.values import Budget, Ledger
from lamina.costs.uncut_requests import MeasuredConversation, UncutRequest
from lamina.dialects import Usage
from lamina.fitting import Fitted, Policy, RequestMemo, fit_request
from lamina.gateway import AnsweredRequest, GatewayAccount
from lamina.models import AS_OF, model
from lamina.relay.calls import OutgoingRequest
from lamina.relay.misses import measure_uncut
from tests.gateway.growing import messages_request

MODEL = "claude-sonnet-5"


DATE = f"prices of {AS_OF}"


def answer(**fields: Any) -> AnsweredRequest:
    values: dict[str, Any] = {"conversation": "c", "model": MODEL, "input": 1_000, "output": 10} | fields
    return AnsweredRequest(**{"full": values["input"], **values})


def sum_prices(*usages: Usage) -> float:
    amounts = [price_usage(usage, MODEL) for usage in usages]
    return sum(amount for amount in amounts if amount is not None)


def account_of(*answers: AnsweredRequest) -> GatewayAccount:
    account = GatewayAccount()
    for each in answers:
        account.add(each)
    return account


def test_before_a_cut_both_are_the_same() -> None:
    account = account_of(answer(), answer(input=2_000, cached=900, written=1_000))
    assert account.cost == pytest.approx(
        sum_prices(Usage(input=1_000, output=10), Usage(input=2_000, cached=900, written=1_000, output=10))
    )
    assert account.cost_without == account.cost
    assert account.write_lines()[2].endswith("the same: nothing was cut")


def test_after_a_cut_the_whole_history_is_read_and_what_is_new_is_paid() -> None:
    account = account_of(
        answer(input=5_000, written=5_000),
        answer(input=3_000, full=6_000, new=1_000, written=2_500, cut=True),
        answer(input=4_000, full=7_000, cached=3_000, written=1_000),
        answer(input=4_100, full=7_100),  # nothing was read, although nothing was cut: the cache was gone
    )
    assert account.cuts == 1
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=5_000, written=5_000, output=10),
            Usage(input=6_000, cached=5_000, written=1_000, output=10),
            Usage(input=7_000, cached=6_000, written=1_000, output=10),
            Usage(input=7_100, output=10),
        )
    )


def test_what_a_cache_misses_it_would_have_missed_as_well() -> None:
    """What is not read is the end of a request, which no cut has touched: it is as long without lamina."""
    account = account_of(
        answer(input=4_000),
        answer(input=5_000, cached=2_000),
        answer(input=3_000, full=6_000, new=1_000, cut=True),
        answer(input=4_000, full=7_000, cached=1_500),
    )
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=4_000, output=10),
            Usage(input=5_000, cached=2_000, output=10),
            Usage(input=6_000, cached=3_000, output=10),
            Usage(input=7_000, cached=4_500, output=10),
        )
    )


def test_a_client_that_marks_nothing_would_have_paid_for_every_token() -> None:
    """The cache keeps what is marked, and lamina alone marked it. What it saved has two parts."""
    account = account_of(
        answer(unmarked=True, input=50_000, written=50_000),
        answer(unmarked=True, input=60_000, cached=50_000, written=10_000),
        answer(unmarked=True, input=3_000, full=61_000, new=1_000, written=3_000, cut=True),
    )
    sent = [Usage(input=tokens, output=10) for tokens in (50_000, 60_000, 61_000)]
    marked = sum_prices(
        Usage(input=50_000, written=50_000, output=10),
        Usage(input=60_000, cached=50_000, written=10_000, output=10),
        Usage(input=61_000, cached=60_000, written=1_000, output=10),
    )
    assert account.cost is not None
    assert account.cost_without == pytest.approx(sum_prices(*sent))
    assert account.write_lines()[2] == (
        f"without lamina: ${sum_prices(*sent):.4f} ({DATE}): the cache breakpoints that lamina placed saved "
        f"${sum_prices(*sent) - marked:.4f}; its cuts saved ${marked - account.cost:.4f}"
    )


def test_what_markers_and_cuts_saved_is_told_as_it_was() -> None:
    """A cut that saved nothing yet, no cut at all, and a marker that cost more than it saved."""
    first = answer(unmarked=True, input=5_000, written=5_000)
    alone = account_of(first)
    assert alone.cost is not None
    assert alone.cost_without is not None
    assert alone.cost_without == pytest.approx(sum_prices(Usage(input=5_000, output=10)))
    dearer = alone.cost - alone.cost_without
    assert alone.write_lines()[2].endswith(
        f": the cache breakpoints that lamina placed cost ${dearer:.4f} more; nothing was cut"
    )
    cut = answer(unmarked=True, input=4_900, full=5_500, new=500, written=4_900, cut=True)
    resumed = account_of(answer(unmarked=True, input=3_000, full=6_000, written=3_000, cut=True))
    full_price = sum_prices(Usage(input=6_000, output=10))  # what the cache held would not have mattered
    assert resumed.write_lines()[2] == f"without lamina: ${full_price:.4f} ({DATE})"
    line = account_of(first, cut).write_lines()[2]
    assert re.search(r"its cuts cost \$[0-9.]+ more$", line), line


def test_what_is_not_known_is_said() -> None:
    unpriced = account_of(answer(), answer(model="no-such-model"))
    assert unpriced.cost is None
    priced = account_of(answer()).cost
    assert (
        unpriced.write_lines()[1]
        == f"cost: at least ${priced:.4f} ({DATE}): no price of 'no-such-model' is known"
    )
    assert account_of(answer(model="no-such-model")).write_lines()[1].startswith("cost: not known: no price")
    window = model(MODEL).budget.window
    too_long = account_of(answer(full=window + 1, cut=True))
    assert too_long.cost is not None
    assert too_long.cost_without is None
    assert "more than the window" in too_long.write_lines()[2]
    silent = GatewayAccount()
    line = {"event": "answered without usage", "conversation": "c", "model": MODEL}
    silent.read_event(line | {"cut": True, "recalled": True})
    silent.read_event(line | {"cut": False, "recalled": False})
    silent.read_event({"event": "cut", "conversation": "c"})
    assert (silent.calls, silent.recalls, silent.cuts, silent.cost) == (1, 1, 1, None)
    counts = "1 call in 1 conversation, 1 cut, 1 recall"
    assert silent.write_lines()[0] == f"{counts}; no answer reported its tokens"
    silent.add(answer())
    assert silent.write_lines()[0].endswith(" answered; 2 answers did not report any")
    known = f"at least ${priced:.4f} ({DATE})"
    assert silent.write_lines()[1] == f"cost: {known}: an answer did not report its tokens"


def test_without_lamina_is_not_known_once_a_request_would_not_have_fitted() -> None:
    """A sum of the requests that fit would stand below the cost of all, as if lamina had made them dearer."""
    window = model(MODEL).budget.window
    lines = [
        answer(input=window // 2, written=window // 2),
        answer(input=20_000, full=window - 1, new=window // 2, written=20_000, cut=True),
        answer(input=30_000, cached=20_000, written=10_000),
        answer(input=40_000, cached=30_000, written=10_000),
    ]
    for count in range(3, len(lines) + 1):
        line = account_of(*lines[:count]).write_lines()[2]
        assert re.fullmatch(r"without lamina: not known: a request .* more than the window of .*", line), line
    assert account_of(*lines[:2]).cost_without is not None


def test_how_a_call_was_served_is_priced_or_named() -> None:
    usual = account_of(answer()).cost or 0.0
    for tier, factor in {"fast": 2.0, "batch": 0.5, "us": 1.1, "batch+us": 0.55}.items():
        served = account_of(answer(tier=tier))
        assert served.cost == pytest.approx(factor * usual)
        assert served.cost_without == served.cost
        assert "standard" not in served.write_lines()[1]
    unknown = account_of(answer(tier="priority"), answer(tier="us"))
    assert unknown.cost == pytest.approx(2.1 * usual)
    assert unknown.write_lines()[1].endswith(f" ({DATE}; priority at standard prices)")


def test_only_what_was_refused_counts_as_refused() -> None:
    """Codex asks for a websocket first, and a failed upstream has a line for the request that it failed."""
    account = GatewayAccount()
    for status in (426, 502, 504, 400, 503):
        account.read_event({"event": "refused", "status": status})
    account.read_event({"event": "unanswered", "id": "p-1", "status": 0})
    assert account.refused == 3


def test_a_recall_costs_and_would_not_have_been_there_without() -> None:
    with_recall = account_of(
        answer(input=4_000),
        answer(input=3_000, full=6_000, new=2_000, cut=True, recalled=True),
        answer(input=4_000, full=7_000, cached=3_000),
    )
    assert (with_recall.calls, with_recall.recalls, with_recall.cuts) == (2, 1, 1)
    assert with_recall.cost == pytest.approx(
        sum_prices(
            Usage(input=4_000, output=10),
            Usage(input=3_000, output=10),
            Usage(input=4_000, cached=3_000, output=10),
        )
    )
    assert with_recall.cost_without == pytest.approx(
        sum_prices(Usage(input=4_000, output=10), Usage(input=6_000, cached=4_000, output=10))
    )


MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("model", "dialect", "hour", "read", "new", "output"),  # USD for a million tokens
    [
        ("deepseek-flash", "openai_chat", 2, 0.006, 0.30, 1.20),
        ("deepseek-flash", "openai_chat", 5, 0.003, 0.15, 0.60),
        ("kimi-k3", "openai_chat", 0, 0.30, 3.00, 15.00),
        ("qwen3.8-max", "openai_chat", 0, 0.40, 2.00, 6.00),
        ("qwen3.8-max", "anthropic", 0, 0.20, 2.50, 6.00),
        ("minimax-m3", "openai_chat", 0, 0.06, 0.30, 1.20),
        ("minimax-m3", "anthropic", 0, 0.06, 0.375, 1.20),
        ("glm-5.3", "openai_chat", 0, 0.26, 1.40, 4.40),
        ("gpt-6.1-sol", "openai_responses", 0, 0.10, 2.50, 10.00),
    ],
)
def test_each_provider_has_its_account_with_and_without_lamina(
    model: str, dialect: str, hour: int, *, read: float, new: float, output: float
) -> None:
    """100,000 tokens, then 130,000 that a cut makes 60,000, of which 20,000 are read."""
    is_billed = dialect in ("anthropic", "openai_responses")
    at = {"model": model, "dialect": dialect, "at": MONDAY.replace(hour=hour).timestamp(), "output": 10_000}
    first = answer(**at, input=100_000, written=100_000 * is_billed)
    second = answer(
        **at, input=60_000, cached=20_000, written=40_000 * is_billed, full=130_000, new=30_000, cut=True
    )
    account = account_of(first, second)
    assert account.cost == pytest.approx(0.1 * new + 0.02 * read + 0.04 * new + 0.02 * output)
    assert account.cost_without == pytest.approx(0.1 * new + 0.1 * read + 0.03 * new + 0.02 * output)


def test_a_window_that_is_too_small_is_told() -> None:
    cuts = [answer(input=3_000, cut=True), answer(input=4_000, cached=3_000)]
    [remark] = [line for line in account_of(*cuts * 5).write_lines() if "too small" in line]
    assert remark.startswith("5 cuts in 10 calls: ")
    assert not any("too small" in line for line in account_of(*cuts * 4).write_lines())


def test_a_window_that_long_answers_make_small_says_so() -> None:
    """Half of it was kept free for answers, and the advice was a larger window alone."""
    windows = {"window": 64_000, "window_source": "set"}
    for reserve, is_told in ((16_000, False), (32_000, True)):
        cut = answer(cut=True, reserve=reserve, **windows)
        lines = account_of(*[cut] * 8, answer(**windows)).write_lines()
        kept_free = f"as it was set; {reserve:,} of them are kept free for the answer; the largest"
        assert any(kept_free in line for line in lines) is is_told
        [remark] = [line for line in lines if "too small" in line]
        assert remark.endswith("shorter answers (max_tokens)") is is_told


def test_the_closing_lines_say_what_was_inferred_of_a_model_and_no_price() -> None:
    like = (
        "as claude-opus-5-5's, since claude-opus-6 is on no list; prices not known; the largest request had "
    )
    for source, said in (
        ("model", "the nearest model's; window, tokens and cache "),
        ("set", "as it was set; tokens and cache "),
    ):
        asked = answer(model="claude-opus-6", dialect="anthropic", window=64_000, window_source=source)
        account = account_of(asked, asked)
        lines = account.write_lines()
        assert f"window of claude-opus-6: 64,000 tokens, {said}{like}1,000" in lines
        assert account.cost is None
        assert "$" not in "".join(lines)
    assert "on no list" not in "".join(account_of(answer(window=9_000, window_source="model")).write_lines())


def test_a_fork_goes_on_where_its_conversation_was() -> None:
    """A client that changes its last message each time has one conversation, and reads its cache."""
    account = account_of(
        answer(input=4_000),
        answer(input=5_000, cached=3_900, conversation="d", parent="c"),
        answer(input=3_000, full=6_000, new=1_000, cut=True, conversation="e", parent="d"),
    )
    assert account.write_lines()[0].startswith("3 calls in 1 conversation, 1 cut; ")
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=4_000, output=10),
            Usage(input=5_000, cached=3_900, output=10),
            Usage(input=6_000, cached=4_900, output=10),
        )
    )


def test_a_fork_that_left_most_of_its_conversation_is_as_long_as_it_is() -> None:
    """Gemini CLI shortens old results itself: nearly all of the next request is new, and is cut."""
    account = account_of(
        answer(input=4_000, new=1_000, counted=4_000),
        answer(input=90_000, cached=3_900, new=86_000, counted=90_000),
        answer(
            input=20_000, full=70_000, counted=20_000, new=60_000, held_back=50_000, cut=True,
            conversation="d", parent="c",
        ),
    )  # fmt: skip
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=4_000, output=10),
            Usage(input=90_000, cached=3_900, output=10),
            Usage(input=70_000, cached=9_900, output=10),
        )
    )


def test_a_request_that_a_killed_gateway_never_logged_is_named() -> None:
    account = GatewayAccount()
    for number in (1, 2, 3):
        account.read_event({"event": "sent", "id": f"i{number}", "conversation": "c"})
    line = {"event": "answered", "id": "i1", "conversation": "c", "model": MODEL}
    account.read_event(line | {"input": 1_000, "full": 1_000})
    account.read_event({"event": "unanswered", "id": "i2", "status": 500})
    assert (account.calls, account.broken_off) == (1, 1)
    assert account.write_lines()[1].endswith("; not in it: 1 request whose answer was not logged")


def test_lines_of_the_log_are_counted() -> None:
    account = GatewayAccount()
    line = {"event": "answered", "at": 1.5, "conversation": "c", "model": MODEL, "outcome": "unchanged"}
    account.read_event(line | {"input": 1_234, "full": 1_234, "cached": 1_000, "written": 0, "output": 5})
    assert account.write_lines()[0] == (
        "1 call in 1 conversation, 0 cuts; 1,234 tokens read, 1,000 of them from the cache, 5 answered"
    )


def test_a_resumed_run_reads_what_its_first_request_shows() -> None:
    """A process that goes on with a conversation of 243,000 tokens found all but the last 91 in the cache."""
    lines = [(32_796, 32_705, 243_018), (33_194, 32_796, 243_416), (33_564, 33_194, 243_786)]
    account = account_of(
        *(answer(input=sent, cached=cached, written=sent - cached, full=full) for sent, cached, full in lines)
    )
    assert account.cost_without == pytest.approx(
        sum_prices(
            *(
                Usage(input=full, cached=full - sent + cached, written=sent - cached, output=10)
                for sent, cached, full in lines
            )
        )
    )
    assert "at most" not in account.write_lines()[2]


def test_a_run_that_finds_the_head_alone_would_have_found_the_head_alone() -> None:
    """The cache forgot the conversation over night. Another session keeps tools and system text in it."""
    account = account_of(
        answer(input=30_000, cached=9_800, written=20_200, full=80_000, unchanged=10_000),
        answer(input=31_000, cached=30_000, written=1_000, unchanged=10_000),
    )
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=80_000, cached=9_800, written=70_200, output=10),
            Usage(input=81_000, cached=80_000, written=1_000, output=10),
        )
    )


def test_a_first_request_that_is_cut_does_not_show_what_the_cache_held() -> None:
    account = account_of(answer(input=3_000, full=6_000, new=1_000, written=3_000, cut=True))
    assert account.write_lines()[2].endswith(
        " at most: what the cache held before 1 request with a first cut is not known"
    )


def test_what_is_new_at_a_cut_is_scaled_by_the_growth_that_was_reported_before() -> None:
    """The gateway counts half as many tokens again as the upstream, and a head that the upstream has not."""
    account = account_of(
        answer(input=4_000, counted=6_400, written=4_000),
        answer(input=5_000, counted=7_900, new=1_500, cached=4_000, written=1_000),
        answer(input=3_000, counted=4_900, full=6_000, new=1_500, written=3_000, cut=True),
    )
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=4_000, written=4_000, output=10),
            Usage(input=5_000, cached=4_000, written=1_000, output=10),
            Usage(input=6_000, cached=5_000, written=1_000, output=10),
        )
    )


def test_a_result_that_entered_shortened_is_whole_without_lamina() -> None:
    account = account_of(
        answer(input=4_000, counted=4_000, written=4_000),
        answer(input=3_000, counted=3_000, full=5_000, new=1_000, written=3_000, cut=True),
        answer(input=3_500, counted=3_500, new=9_500, held_back=9_000, cached=3_000, written=500),
    )
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=4_000, written=4_000, output=10),
            Usage(input=5_000, cached=4_000, written=1_000, output=10),
            Usage(input=14_500, cached=5_000, written=9_500, output=10),
        )
    )


def test_a_recall_does_not_lower_what_the_cache_would_have_read() -> None:
    """The second call of a request with a recall read little. Its whole history was cached all the same."""
    account = account_of(
        answer(input=5_000, written=5_000),
        answer(input=3_000, full=6_000, new=1_000, written=3_000, cut=True),
        answer(input=4_000, cached=3_000, written=1_000, recalled=True),
        answer(input=6_000, cached=500, written=5_500),
        answer(input=7_000, cached=6_000, written=1_000),
    )
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=5_000, written=5_000, output=10),
            Usage(input=6_000, cached=5_000, written=1_000, output=10),
            Usage(input=7_000, cached=6_000, written=1_000, output=10),
            Usage(input=8_000, cached=7_000, written=1_000, output=10),
        )
    )


def test_the_lines_of_an_earlier_run_are_the_past_of_its_conversations() -> None:
    """They are read once, if a conversation of theirs goes on, and nothing of them is summed."""
    earlier = [
        answer(id="a-1", input=5_000, written=5_000),
        answer(id="a-2", input=3_000, full=6_000, new=1_000, written=3_000, cut=True),
    ]
    now = [
        answer(id="b-1", input=2_000, full=9_999, new=500, written=2_000, cut=True),
        answer(id="b-2", input=2_500, cached=2_000, written=500),
    ]
    times_read = 0

    def read_earlier() -> list[dict[str, Any]]:
        nonlocal times_read
        times_read += 1
        lines = [msgspec.structs.asdict(line) for line in (*earlier, *now)]
        return [{"event": "cut"}, {"event": "answered", "input": "?"}] + [
            {"event": "answered", **line} for line in lines
        ]

    account = GatewayAccount(read_earlier)
    for each in now:
        account.add(each)
    assert times_read == 1
    assert account.calls == 2
    assert account.cost_without == pytest.approx(
        sum_prices(
            Usage(input=6_500, cached=6_000, written=500, output=10),
            Usage(input=7_000, cached=6_500, written=500, output=10),
        )
    )


def test_the_last_lines_cost_what_they_cost_in_the_sum_of_all() -> None:
    """`lamina log -f` adds up the last lines alone. The ones before them say what was left out of these."""
    lines = [
        answer(input=5_000, written=5_000),
        answer(input=6_000, cached=5_000, written=1_000),
        answer(input=3_000, full=7_000, new=1_000, written=3_000, cut=True),
        answer(input=4_000, cached=3_000, written=1_000),
        answer(input=4_500, cached=4_000, written=500),
    ]
    encoded = [msgspec.json.encode({"event": "answered", **msgspec.structs.asdict(line)}) for line in lines]
    whole = account_of(*lines).cost_without
    assert whole is not None
    for earlier in range(len(lines)):
        account = GatewayAccount()
        for line in (b"INFO: started", b'{"event": "answered"}', *encoded[:earlier]):
            account.learn_line(line)
        for line in encoded[earlier:]:
            account.read_line(line)
        assert account.calls == len(lines) - earlier
        before = account_of(*lines[:earlier]).cost_without
        assert before is not None
        assert account.cost_without == pytest.approx(whole - before)
        assert "nothing was cut" not in account.write_lines()[2]


def test_the_first_requests_of_sub_agents_are_told_apart() -> None:
    account = account_of(
        answer(input=30_000, written=30_000),
        answer(conversation="k1", agent_of="claude-code:s", input=12_000, cached=9_000, written=3_000),
        answer(conversation="k1", agent_of="claude-code:s", input=13_000, cached=12_000, written=1_000),
        answer(conversation="k2", agent_of="claude-code:s", input=12_000, cached=11_000, written=1_000),
        answer(conversation="k3", parent="k2", agent_of="claude-code:s", input=14_000, cached=12_000),
    )
    first = [
        Usage(input=12_000, cached=9_000, written=3_000, output=10),
        Usage(input=12_000, cached=11_000, written=1_000, output=10),
    ]
    line = account.write_lines()[3]
    assert line.startswith("of it sub-agents: 4 calls, $")
    assert line.endswith(
        "their first requests read 24,000 tokens, 20,000 of them from the cache: "
        f"${sum_prices(*first):.4f} ({DATE})"
    )
    assert len(account_of(answer()).write_lines()) == 3


def test_a_setting_that_would_have_cost_less_is_told_with_its_price() -> None:
    """A client that sends 30,000 tokens at first and 1,500 more with each call."""
    answers = [answer(input=30_000, written=30_000)]
    for number in range(1, 200):
        size = 30_000 + 1_500 * number
        answers.append(answer(input=size, cached=size - 1_500, written=1_500, gap=20.0))
    long = account_of(*answers)
    [line] = [line for line in long.write_lines() if line.startswith("with --window price")]
    setting, _, price = line.partition(": about $")
    assert setting == "with --window price --prefer cost"
    assert 0.2 * (long.cost or 0) < float(price.removesuffix(", simulated")) < 0.6 * (long.cost or 0)
    short = account_of(*answers[:9])
    assert not [line for line in short.write_lines() if line.startswith("with --window price")]


def test_what_is_new_in_a_cut_is_scaled_by_all_growth_before_it() -> None:
    conversation = MeasuredConversation()
    for each in (
        answer(counted=1_000),
        answer(input=1_200, cached=1_000, counted=1_100, new=100),
        answer(input=1_600, cached=1_200, counted=1_300, new=200),
        answer(input=1_900, cached=1_600, counted=1_600),  # it has more tools, and no new message
        answer(input=900, full=2_300, cut=True, counted=800, new=100),
    ):
        conversation = conversation.follow(each, UncutRequest.measure(each, conversation))
    assert conversation.uncut.tokens == 1_900 + 200  # the upstream counts two tokens for each of the gateway
    assert conversation.uncut.read == 1_900


def fit_small(steps: int = 14) -> Fitted:
    """A request that had to be cut."""
    fitted = fit_request(messages_request(steps), budget=Budget(window=4_000))
    assert fitted.ledger.cuts
    return fitted


def measure(fitted: Fitted, *, previous: dict[str, Any] | None = None) -> int:
    usage = Usage(
        input=fitted.envelope.account.uncalibrated
    )  # so that one token of either is one of the other
    counter = Policy().find_counter("claude-sonnet-5")
    new_cuts = () if fitted.envelope.cut is None else (fitted.envelope.cut,)
    sent = OutgoingRequest(fitted=fitted, previous=previous, new_cuts=new_cuts)
    return measure_uncut(sent, fitted, usage, counter, {}).full


def test_the_account_counts_nothing_and_is_near_what_counting_gives() -> None:
    """A tokenizer may take seconds for what a cut left out, and the account is made on the event loop."""
    counted_texts: list[str] = []
    counter = Policy().find_counter("claude-sonnet-5")

    def count(text: str) -> int:
        counted_texts.append(text)
        return counter.count(text)

    noting_counter = msgspec.structs.replace(counter, count=count)
    memo = RequestMemo()
    policy = Policy(budget=Budget(window=4_000), counter=noting_counter)
    fitted = fit_request(messages_request(14), policy=policy, memo=memo)
    assert fitted.ledger.lines
    counted_texts.clear()
    counts = memo.build.counts(noting_counter)
    sent = OutgoingRequest(fitted=fitted, previous={}, new_cuts=fitted.ledger.cuts, new_segments=30)
    measured = measure_uncut(sent, fitted, Usage(input=3_000), noting_counter, counts)
    by_bytes = measure_uncut(sent, fitted, Usage(input=3_000), noting_counter, {})
    assert not counted_texts
    assert measured.full > 9_000
    assert by_bytes.full == pytest.approx(measured.full, rel=0.05)
    assert by_bytes.new == pytest.approx(measured.new, rel=0.05)
    account = msgspec.structs.replace(fitted.envelope.account, margin=500)  # what calibration adds
    envelope = msgspec.structs.replace(fitted.envelope, account=account)
    calibrated = msgspec.structs.replace(fitted, envelope=envelope)
    again = measure_uncut(OutgoingRequest(fitted=calibrated), calibrated, Usage(input=3_000), counter, counts)
    assert again.counted == measured.counted


def test_what_entered_shortened_belongs_to_the_uncut_request() -> None:
    """A result that no cut has lowered is counted by itself. One that a cut has lowered is in the cut."""
    fitted = fit_small()
    sent = fitted.envelope.account.uncalibrated
    lines = fitted.ledger.lines
    assert lines
    entered = {ref: msgspec.structs.replace(line, cut=0) for ref, line in lines.items()}
    without_cuts = msgspec.structs.replace(fitted.ledger, cuts=(), lines=entered)
    by_cut = {ref: msgspec.structs.replace(line, cut=1) for ref, line in lines.items()}
    assert measure(replace_ledger(fitted, without_cuts)) > sent
    assert measure(replace_ledger(fitted, msgspec.structs.replace(without_cuts, lines=by_cut))) == sent
    uncut = msgspec.structs.replace(fitted, envelope=msgspec.structs.replace(fitted.envelope, cut=None))
    assert measure(replace_ledger(uncut, without_cuts), previous={}) == sent
    assert measure(fitted, previous={}) > sent


def replace_ledger(fitted: Fitted, ledger: Ledger) -> Fitted:
    return msgspec.structs.replace(fitted, ledger=ledger)


@pytest.mark.parametrize("tool", ["recall", "read"])
def test_what_was_recalled_does_not_belong_to_the_uncut_request(tool: str) -> None:
    """Calls of lamina's own tools and their results are in no request of the client's."""
    request = json.loads(json.dumps(messages_request(4)).replace('"read"', f'"{tool}"'))
    fitted = fit_request(request, budget=Budget(window=100_000))
    entries = find_logged(fitted.envelope.entries)
    called = [entry for entry in entries if entry.segment.kind in ("tool_call", "tool_result")]
    assert len(called) == 8
    tokens = fitted.envelope.tokens
    some_line = fit_small().ledger.lines  # of another conversation: it only says that something is lowered
    cut = Cut(number=1, reason="over the trigger", before=10 * tokens, lowered=1)
    ledger = msgspec.structs.replace(fitted.ledger, cuts=(cut,), lines=some_line)
    sent = fitted.envelope.account.uncalibrated
    recalled = sum(entry.tokens for entry in called) if tool == "recall" else 0
    assert measure(msgspec.structs.replace(fitted, ledger=ledger, has_recall=True)) == 11 * sent - recalled
