"""What a cut leaves: small digests however long the conversation, a target that is reached, a true floor."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from lamina import Budget, BuildMemo, Envelope, Form, Ledger, RequestHead, Role, Segment, build
from lamina.core import CHARS4, Counter
from lamina.core.cut_target import FEW_STEPS, LEAST_SPARED, RESERVE, derive_limits, reserve
from lamina.core.digests import SHARE, is_digest
from lamina.core.tokens import ESTIMATE
from lamina.core.values import Preference
from lamina.segments import assistant, call, result, system, user

WORDS = "the parser of order_{n} reads line_{n}.txt and total_{n} of it; "


def talk(count: int, *, size: int) -> list[Segment]:
    """Short turns: a question with names of its own, and an answer of `size` sentences."""
    log = [system("Be brief."), user("Port the parsers, one after another.")]
    for number in range(count):
        log.append(assistant(f"Done with {number}. " + WORDS.format(n=number) * size))
        log.append(user(f"Now mend parse_order_{number} for case {number}, and mind rule_{number}. Go on."))
    return log


def read_files(count: int, *, characters: int) -> list[Segment]:
    """A task, and an agent that reads one file of so many characters after another for it."""
    log = [system("Be brief."), user("Find the error.", key="task")]
    for number in range(count):
        text = WORDS.format(n=number) * (characters // 50)
        log.append(call("read_file", {"path": f"m{number}.py"}, id=f"c{number}", joins=False))
        log.append(result(text[:characters], id=f"c{number}", name="read_file"))
    return log


def grow(log: list[Segment], budget: Budget, counter: Counter = CHARS4) -> list[Envelope]:
    """The requests of a conversation that grew to this log."""
    ledger = Ledger()
    memo = BuildMemo()
    envelopes: list[Envelope] = []
    for end in range(2, len(log) + 1):
        if log[end - 1].role is Role.ASSISTANT:
            continue
        envelope = build(log[:end], budget=budget, counter=counter, ledger=ledger, memo=memo)
        ledger = envelope.ledger
        envelopes.append(envelope)
    return envelopes


def count_digest_tokens(envelope: Envelope) -> int:
    return sum(entry.tokens for entry in envelope.sent if is_digest(entry))


def list_turns_between_cuts(envelopes: list[Envelope]) -> list[int]:
    cut_turns = [turn for turn, envelope in enumerate(envelopes) if envelope.cut is not None]
    return [later - earlier for earlier, later in pairwise(cut_turns)]


@pytest.mark.parametrize(
    ("window", "size"), [(8_000, 12), pytest.param(32_000, 48, marks=pytest.mark.thorough)]
)
def test_digests_stay_within_a_quarter_of_the_room_and_cuts_stay_rare(window: int, size: int) -> None:
    envelopes = grow(talk(300, size=size), Budget(window=window, reserve=0))
    assert max(map(count_digest_tokens, envelopes)) <= window // SHARE
    spacing = list_turns_between_cuts(envelopes)
    quarter = len(spacing) // 4
    assert quarter >= 2
    second_quarter = spacing[quarter : 2 * quarter]
    last_quarter = spacing[-quarter:]
    # In the second quarter digests do not fill their share yet. When they do, cuts come a little sooner.
    assert median(last_quarter) >= 0.85 * median(second_quarter)


def test_digests_of_many_tokens_and_few_characters_stay_within_a_quarter_too() -> None:
    dense = Counter(name="dense", count=lambda text: (len(text) + 1) // 2)
    envelopes = grow(talk(40, size=12), Budget(window=4_000, reserve=0), dense)
    assert len(list_turns_between_cuts(envelopes)) >= 4
    assert max(map(count_digest_tokens, envelopes)) <= 4_000 // SHARE


def test_what_fits_is_sent_whole() -> None:
    text = "word " * (21_400 * 4 // 5)
    log = [system("Be brief."), user("Read it."), call("read_file", {"path": "a.py"}, id="c")]
    log.append(result(text, id="c", name="read_file"))
    envelope = build(log, budget=Budget(window=32_000), counter=CHARS4)
    assert envelope.sent[-1].form is Form.FULL
    assert envelope.tokens > 21_400


def test_of_results_that_do_not_fit_together_the_small_ones_stay_whole() -> None:
    log = [system("Be brief."), user("Read them.")]
    sizes = (800, 2_000, 60_000, 80_000)
    log += [call("read_file", {"path": f"{size}.py"}, id=f"c{size}") for size in sizes]
    log += [result("word " * (size // 5), id=f"c{size}", name="read_file", key=f"r{size}") for size in sizes]
    envelope = build(log, budget=Budget(window=16_000, reserve=0), counter=CHARS4)
    forms = {entry.segment.key: entry.form for entry in envelope.sent if entry.segment.key.startswith("r")}
    assert forms == {"r800": Form.FULL, "r2000": Form.FULL, "r60000": Form.COMPACT, "r80000": Form.COMPACT}
    assert envelope.tokens <= 16_000


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_a_cut_reaches_its_target_with_large_results(share: float) -> None:
    window = 16_000
    budget = Budget(window=window, reserve=0)
    log = read_files(40, characters=int(window * share * 4))
    ledger = Ledger()
    memo = BuildMemo()
    cuts = 0
    for end in range(4, len(log) + 1, 2):
        envelope = build(log[:end], budget=budget, counter=CHARS4, ledger=ledger, memo=memo)
        ledger = envelope.ledger
        if envelope.cut is None:
            continue
        cuts += 1
        limits = derive_limits(budget, RequestHead(), envelope.entries)
        assert envelope.cut.after <= max(limits.target, window * 4 // 10)
        assert not envelope.cut.floor
    assert cuts >= 2


def test_a_cut_that_spares_steps_has_not_met_the_floor() -> None:
    log = read_files(12, characters=4_000)
    spared = build(log, budget=Budget(window=12_500, reserve=0, keep_last=8), counter=CHARS4)
    assert spared.cut is not None
    assert spared.cut.after > 12_500 * 4 // 10
    assert not spared.cut.floor
    deeper = build(log, budget=Budget(window=12_500, reserve=0, keep_last=0), counter=CHARS4)
    assert deeper.cut is not None
    assert deeper.cut.after < spared.cut.after


def test_a_cut_that_leaves_only_what_must_be_sent_has_met_the_floor() -> None:
    log = [system("Rules. " * 1_000), *read_files(8, characters=500)[1:], user("Why? " * 1_300)]
    envelope = build(log, budget=Budget(window=4_000, reserve=0), counter=CHARS4)
    assert envelope.cut is not None
    assert envelope.cut.after > 4_000 * 4 // 10
    assert envelope.cut.floor


@pytest.mark.parametrize(
    ("window", "parameters", "tokens"),
    [
        (32_000, {}, 4_000),
        (1_000_000, {}, RESERVE),
        (32_000, {"max_tokens": 1_000}, 1_000),
        (32_000, {"max_tokens": 16_000}, 16_000),
        (32_000, {"max_output_tokens": 12_000, "max_tokens": 1_000}, 12_000),
        (32_000, {"max_tokens": 24_000}, 4_000),
        (32_000, {"max_completion_tokens": 24_000}, 4_000),
        (32_000, {"max_completion_tokens": 1_000, "max_tokens": 24_000}, 4_000),
        (64_000, {"max_tokens": 64_000}, 8_000),
        (200_000, {"max_tokens": 128_000}, RESERVE),
    ],
)
def test_the_reserve_is_what_the_request_asks_for_or_a_share(
    window: int, parameters: dict[str, int], tokens: int
) -> None:
    assert reserve(Budget(window=window), RequestHead(parameters=parameters)) == tokens


def test_a_large_result_does_not_take_the_place_of_several_steps() -> None:
    """The result before the last one is large. It is shortened, and the small steps before it stay whole."""
    log = read_files(6, characters=2_000)
    log += read_files(24, characters=800)[2:]
    log += read_files(1, characters=12_000)[2:]
    log += read_files(1, characters=4_000)[2:]
    envelope = build(log, budget=Budget(window=8_000, reserve=0), counter=CHARS4)
    assert envelope.cut is not None
    results = [entry for entry in envelope.entries if entry.segment.kind == "tool_result"]
    large_result = results[-2]
    assert large_result.form is Form.COMPACT
    assert large_result.why == "large result"
    small_results = results[-6:-2]
    assert [entry.form for entry in small_results] == [Form.FULL] * len(small_results)


def test_steps_that_the_caller_spares_stay_whole_however_large() -> None:
    log = read_files(30, characters=3_000)
    envelope = build(log, budget=Budget(window=16_000, reserve=0, keep_last=5), counter=CHARS4)
    assert envelope.cut is not None
    results = [entry for entry in envelope.entries if entry.segment.kind == "tool_result"]
    assert [entry.form for entry in results[-5:]] == [Form.FULL] * 5


@pytest.mark.parametrize("tools", [0, 5_000, 20_000])
def test_a_target_leaves_history_beside_what_no_cut_can_free(tools: int) -> None:
    """Large system text, as many tools are: a cut still leaves some of the newest steps as they are."""
    log = read_files(40, characters=4_000)
    log[0] = system("Rule. " * (tools * 4 // 6 + 1))
    envelope = build(log, budget=Budget(window=32_000, reserve=0), counter=CHARS4)
    assert envelope.cut is not None
    results = [entry for entry in envelope.entries if entry.segment.kind == "tool_result"]
    in_full = [entry for entry in results if entry.form is Form.FULL]
    assert len(in_full) >= 2
    assert count_digest_tokens(envelope) <= (32_000 - tools) // SHARE


@pytest.mark.parametrize(
    ("limit", "note"),
    [
        (1_000, ()),
        (6_000, ("6,000 of 16,000 tokens are kept free for the answer, since the request allows it 6,000",)),
        (
            64_000,
            ("2,000 of 16,000 tokens are kept free for the answer, though the request allows it 64,000",),
        ),
    ],
)
def test_the_account_says_when_the_answer_takes_much_of_the_window(limit: int, note: tuple[str, ...]) -> None:
    head = RequestHead(parameters={"max_tokens": limit})
    envelope = build([user("Hi.")], head=head, budget=Budget(window=16_000), counter=CHARS4)
    assert envelope.notes == note


@pytest.mark.parametrize("sentence", ["the parser sums it up; ", "订单解析器计算总额并检查字段"])
def test_cuts_are_as_deep_in_dense_scripts(sentence: str) -> None:
    """A message that a digest may quote is folded, however many tokens its script takes."""
    log = [system("Be brief.")]
    for number in range(60):
        log.append(user(f"{number} {sentence * 200}"[:1_500]))
        log.append(assistant(f"Answer {number}."))
    log.append(user("And now?"))
    envelope = build(log, budget=Budget(window=16_000, reserve=0), counter=ESTIMATE)
    assert envelope.cut is not None
    assert envelope.cut.after <= 8_000


@pytest.mark.parametrize("pinned", [False, True])
def test_digests_stay_bounded_beside_messages_that_keep_them_apart(*, pinned: bool) -> None:
    """A long or pinned message every few turns stays between two digests, or is folded too."""
    window = 16_000
    log: list[Segment] = []
    for number, segment in enumerate(talk(150, size=24)):
        log.append(segment)
        if number % 40 == 20:
            text = f"Skill {number}. " + WORDS.format(n=number) * 50
            log.append(user(text[: 600 if pinned else None], pinned=pinned))
    envelopes = grow(log, Budget(window=window, reserve=0))
    assert sum(envelope.cut is not None for envelope in envelopes) >= 4
    assert max(map(count_digest_tokens, envelopes)) <= window // SHARE


def test_a_long_message_after_the_first_answer_is_shortened_and_the_task_is_not() -> None:
    task = user("Port the parser. " * 200, key="task")
    skill = user("How to test: run them all. " * 200, key="skill")
    log = [system("Be brief."), task, assistant("Reading."), skill, assistant("Noted."), user("Go on.")]
    log += read_files(16, characters=4_000)[2:]
    envelope = build(log, budget=Budget(window=12_000, reserve=0), counter=CHARS4)
    assert envelope.cut is not None
    forms = {entry.segment.key: entry.form for entry in envelope.entries}
    assert forms["task"] is Form.FULL
    assert forms["skill"] < Form.FULL
    assert envelope.cut.after <= 12_000 * 4 // 10


@pytest.mark.parametrize(
    ("budget", "prefer", "least_spared"),
    [
        (Budget(window=4_000, reserve=0), "balanced", LEAST_SPARED),
        (Budget(window=6_000, reserve=0), "balanced", 1_500),
        (Budget(window=12_000, reserve=0), "balanced", FEW_STEPS),
        (Budget(window=12_000, reserve=0), "cost", LEAST_SPARED),
        (Budget(window=32_000, reserve=0), "balanced", 5_120),
        (Budget(window=32_000, reserve=0), "memory", 5_120),
        (Budget(window=32_000, reserve=0), "cost", LEAST_SPARED),
        (Budget(window=32_000, reserve=0, target=0.3), "balanced", LEAST_SPARED),
    ],
)
def test_a_room_spares_a_few_steps_or_a_share_of_it_unless_cost_or_a_target_is_asked_for(
    budget: Budget, prefer: Preference, least_spared: int
) -> None:
    assert derive_limits(budget, RequestHead(), [], prefer=prefer).least_spared == least_spared
