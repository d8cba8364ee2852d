"""Single decisions about one call: what is learnt of its answer, its markers, how long it would be uncut."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lamina.conversations.store import ConversationState
from lamina.core.entries import find_logged
from lamina.core.scale import Scale
from lamina.core.values import Budget, Cut, Ledger
from lamina.dialects import DIALECTS
from lamina.dialects.port import Tool
from lamina.dialects.usage import NOTHING_REPORTED, Cleared, Usage
from lamina.fitting.own_tools import OwnTool
from lamina.fitting.policy import Policy
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.gateway import usage as usage_module
from lamina.gateway.calls import IncomingRequest, OutgoingRequest, call_upstream
from lamina.gateway.config import UpstreamSettings
from lamina.gateway.conversation_index import LiveConversation
from lamina.gateway.fit import _bound_next
from lamina.gateway.identity import ClientIdentity
from lamina.gateway.misses import measure_uncut
from lamina.gateway.policies import plans_markers
from lamina.gateway.request_bodies import decode_body
from lamina.gateway.sent_calls import MOST_BYTES
from lamina.gateway.sizes import (
    UNKNOWN_WINDOW,
    ChosenWindow,
    CountedRequest,
    KnownTrigger,
    choose_window,
    find_trigger,
)
from lamina.gateway.stream import AnswerWriter
from lamina.gateway.telemetry import record_answered
from lamina.gateway.turn_memory import TurnMemory
from lamina.gateway.upstreams import Upstream
from lamina.gateway.usage import AnswerFacts, UsageReader
from tests.gateway.growing import chat_request, messages_request
from tests.gateway.running import follow_calls

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
UNUSED: Any = None


def make_incoming(
    request: Json, dialect: str = "anthropic", profile: Any = "anthropic", **policy: Any
) -> IncomingRequest:
    body = decode_body(json.dumps(request).encode(), TurnMemory())
    settings = UpstreamSettings(url="http://127.0.0.1:9", profile=profile, policy=Policy(**policy))
    return IncomingRequest(
        workspace="default",
        identity=ClientIdentity(),
        dialect=DIALECTS[dialect],
        upstream=Upstream("up", settings),
        body=body,
        request=body.request,
        model=body.model,
    )


def make_conversation(**state: Any) -> LiveConversation:
    return LiveConversation("default", "name", "family", ConversationState(**state))


# What is learnt of an answer


class OneLock:
    """An index with one lock."""

    def __init__(self) -> None:
        self.only = asyncio.Lock()

    def lock(self, _: str, __: str) -> asyncio.Lock:
        return self.only


class Saver:
    """Counts what is saved at once and what is saved later."""

    def __init__(self) -> None:
        self.now = 0
        self.later = 0

    async def save_now(self, _: LiveConversation) -> bool:
        self.now += 1
        return True

    def save_later(self, _: LiveConversation) -> None:
        self.later += 1


def learn(sent: OutgoingRequest, usage: Usage, *, waits: bool = False, at_once: bool = False) -> Saver:
    """Let a learner record a report, by the way that waits for the lock or by the one that does not."""
    saver = Saver()
    port: Any = saver

    async def record() -> None:
        index: Any = OneLock()
        learner = follow_calls(index, port)
        if waits:
            await learner.record_answer(sent, usage, at_once=at_once)
        else:
            assert learner.record_if_free(sent, usage)

    asyncio.run(record())
    return saver


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("usage", "number", "saves"),
    [
        (NOTHING_REPORTED, 2, 0),
        (Usage(input=50, output=9), 2, 0),  # the last report said the same of the input
        (Usage(input=60), 1, 0),  # it is late
        (Usage(input=60), 2, 1),
        (Usage(input=50, cached=40), 2, 1),
        (Usage(input=50, cleared=Cleared(tokens=9)), 2, 1),
    ],
)
def test_only_a_report_with_news_is_saved(usage: Usage, number: int, saves: int, *, waits: bool) -> None:
    conversation = make_conversation(requests=2, usage=Usage(input=50))
    saver = learn(OutgoingRequest(conversation=conversation, number=number), usage, waits=waits)
    assert (saver.later, saver.now) == (saves, 0)
    assert conversation.reported == (usage if saves else NOTHING_REPORTED)
    assert conversation.state.usage == (usage if saves else Usage(input=50))


async def test_a_conversation_that_is_held_is_not_waited_for() -> None:
    index: Any = OneLock()
    saver: Any = Saver()
    sent = OutgoingRequest(conversation=make_conversation(requests=1), number=1)
    async with index.only:
        assert follow_calls(index, saver).record_if_free(sent, Usage(input=60)) is False


def test_what_a_server_cleared_belongs_to_the_measured_request() -> None:
    conversation = make_conversation(requests=1)
    conversation.turns = ({"role": "user"},)
    conversation.head_bytes = 7
    learn(OutgoingRequest(conversation=conversation, number=1), Usage(input=100, cleared=Cleared(tokens=30)))
    assert conversation.measured is not None
    assert conversation.measured.tokens == 130
    assert conversation.measured.head_bytes == 7


@pytest.mark.parametrize(("more_bytes", "is_believed"), [(0, True), (1, False)])
def test_a_report_with_too_many_bytes_for_each_token_is_not_believed(
    more_bytes: int, *, is_believed: bool
) -> None:
    conversation = make_conversation(requests=1)
    conversation.turns = ({"role": "user"},)
    conversation.text_size = 100 * MOST_BYTES + more_bytes
    learn(OutgoingRequest(conversation=conversation, number=1), Usage(input=100))
    assert (conversation.measured is not None) is is_believed
    assert conversation.reported.input == 100


@pytest.mark.parametrize(("tokens", "now"), [(50, 0), (51, 1)])
def test_a_report_is_stored_at_once_above_half_of_the_trigger(tokens: int, now: int) -> None:
    conversation = make_conversation(requests=1)
    conversation.turns = ({"role": "user"},)
    conversation.trigger = KnownTrigger(Budget(window=200), {}, 100)
    sent = OutgoingRequest(conversation=conversation, number=1)
    saver = learn(sent, Usage(input=tokens), waits=True, at_once=True)
    assert (saver.now, saver.later) == (now, 1 - now)


# What the cache should give back, and what it is asked


def test_a_read_is_predicted_from_the_last_report_unless_something_was_cut() -> None:
    previous: Json = {"model": "m"}
    sent = OutgoingRequest(previous=previous, previous_usage=Usage(input=70))
    assert sent.predicted_read == 70
    assert OutgoingRequest(previous=None, previous_usage=Usage(input=70)).predicted_read == 0
    cut = Cut(number=1, reason="over the trigger", lowered=2)
    assert msgspec.structs.replace(sent, new_cuts=(cut,)).predicted_read == 0


def test_before_the_first_report_nothing_is_predicted() -> None:
    call = call_upstream(make_incoming(messages_request(1)), salted=False)
    conversation = make_conversation()
    conversation.note_sent(call.request)
    outgoing = call.passed(conversation, call.request, 2)
    assert outgoing.previous is call.request
    assert outgoing.predicted_read == 0
    assert outgoing.conversation_name == "name"
    assert call.unchanged().conversation_name == ""


# Markers


def pad_request(size: int) -> Json:
    """A request of exactly so many bytes."""
    request: Json = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": ""}]}
    request["messages"][0]["content"] = "x" * (size - len(json.dumps(request)))
    return request


@pytest.mark.parametrize(("size", "plans"), [(1_023, False), (1_024, True)])
def test_a_request_gets_markers_as_soon_as_its_bytes_could_be_enough_tokens(
    size: int, *, plans: bool
) -> None:
    incoming = make_incoming(pad_request(size), breakpoints="auto")
    assert len(incoming.body.text) == size
    assert plans_markers(incoming) is plans


@pytest.mark.parametrize(
    ("dialect", "profile", "request_body"),
    [
        ("openai_chat", "openrouter", chat_request(3, model="gpt-5.6")),  # it keeps the end of each turn
        ("openai_chat", "openai", chat_request(3, model="gpt-5")),
        ("anthropic", "anthropic", messages_request(3, model="deepseek-chat")),
        ("anthropic", "vllm", messages_request(3)),  # it reads no markers
    ],
)
def test_a_cache_that_keeps_everything_gets_no_markers(
    dialect: str, profile: str, request_body: Json
) -> None:
    assert not plans_markers(make_incoming(request_body, dialect, profile, breakpoints="auto"))


# Streams and their usage


@pytest.mark.parametrize(
    ("pieces", "number"),
    [
        ([], 0),
        ([b'data: {"type":"ping"}\n\n'], 0),
        ([b'data: {"sequence_number":0}\n\n'], 1),
        ([b'data: {"sequence_number": 6}\n\n', b'data: {"sequence_number": 7}\n\n'], 8),
        ([b'data: {"delta":"\\"sequence_number\\": 9"}\n\n'], 0),
    ],
)
async def test_an_event_of_our_own_goes_on_counting(pieces: list[bytes], number: int) -> None:
    async def send(_: Any) -> None:
        pass

    writer = AnswerWriter(send)
    for piece in pieces:
        await writer.write(piece)
    assert writer.next_number == number


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(("longer", "is_read"), [(0, True), (1, False)])
def test_an_answer_is_read_up_to_the_longest_one(
    monkeypatch: pytest.MonkeyPatch, content_type: str, longer: int, *, is_read: bool
) -> None:
    monkeypatch.setattr(usage_module, "LONGEST", 200)
    text = b'{"usage":{"input_tokens":9,"output_tokens":1}}'
    if content_type == "text/event-stream":
        text = b"data: " + text
    answer = text + b" " * (200 - len(text) + longer)
    reader = UsageReader(content_type, "", keeps_body=True)
    reader.feed(answer[:30])
    reader.feed(answer[30:])
    assert reader.kept_body() == (answer if is_read else None)
    assert reader.finish().input == (9 if is_read else 0)


# Windows and triggers


def test_a_window_says_where_it_comes_from() -> None:
    upstream = UpstreamSettings(url="http://127.0.0.1:9", profile="openai")
    assert choose_window(upstream, "nobody-knows-it", None) == ChosenWindow(UNKNOWN_WINDOW, "unknown")
    served = choose_window(upstream, "nobody-knows-it", None, served_window=55_000)
    assert served == ChosenWindow(55_000, "server")
    refused = choose_window(upstream, "nobody-knows-it", 33_000, served_window=55_000)
    assert refused == ChosenWindow(33_000, "refusal")
    assert choose_window(upstream, "gpt-5", None).source == "model"
    own = msgspec.structs.replace(upstream, policy=Policy(budget=44_000))
    assert choose_window(own, "gpt-5", None) == ChosenWindow(44_000, "set")


def test_a_trigger_is_found_once_for_the_same_budget_and_parameters() -> None:
    budget = Budget(window=10_000)
    head = DIALECTS["anthropic"].wire.parse(messages_request(1)).head
    first = find_trigger(budget, head, None)
    assert find_trigger(budget, head, first) is first
    other_budget = find_trigger(Budget(window=20_000), head, first)
    assert other_budget.tokens > first.tokens
    longer_head = DIALECTS["anthropic"].wire.parse(messages_request(1, max_tokens=5_000)).head
    assert find_trigger(budget, longer_head, first).tokens < first.tokens


# Spans


@pytest.mark.parametrize("recalled", [False, True])
def test_a_span_counts_an_answer_to_the_gateway_as_a_recall(*, recalled: bool) -> None:
    recalls: list[int] = []
    trace: Any = SimpleNamespace(
        record_answer=lambda **_: None, record_recalls=recalls.append, record_usage=lambda **_: None
    )
    record_answered(trace, Usage(input=1), AnswerFacts(), recalled=recalled)
    assert recalls == [1] * recalled


def fit_small(steps: int = 14) -> Fitted:
    """A request that had to be cut."""
    fitted = fit_request(messages_request(steps), budget=Budget(window=4_000))
    assert fitted.ledger.cuts
    return fitted


# How long a request would be if nothing were cut


def measure(fitted: Fitted, *, previous: Json | None = None) -> int:
    usage = Usage(
        input=fitted.envelope.account.uncalibrated
    )  # so that one token of either is one of the other
    counter = Policy().find_counter("claude-sonnet-5")
    sent = OutgoingRequest(fitted=fitted, previous=previous)
    return measure_uncut(sent, fitted, usage, Scale(counter=counter)).full


def test_what_was_counted_for_a_cut_is_not_counted_again_for_its_account() -> None:
    """A tokenizer may take a second for what a cut left out, and the account is made on the event loop."""
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
    weights = Scale(counter=noting_counter, counts=memo.build.counts(noting_counter))
    measured = measure_uncut(OutgoingRequest(fitted=fitted), fitted, Usage(input=3_000), weights)
    assert measured.full > 3_000
    assert not counted_texts
    account = msgspec.structs.replace(fitted.envelope.account, margin=500)  # what calibration adds
    envelope = msgspec.structs.replace(fitted.envelope, account=account)
    calibrated = msgspec.structs.replace(fitted, envelope=envelope)
    sent = OutgoingRequest(fitted=calibrated)
    assert measure_uncut(sent, calibrated, Usage(input=3_000), weights).counted == measured.counted


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


@pytest.mark.parametrize(("tool", "is_own"), [("read", True), ("another", False)])
def test_what_was_recalled_does_not_belong_to_the_uncut_request(tool: str, *, is_own: bool) -> None:
    """Calls of lamina's own tools and their results are in no request of the client's."""
    fitted = fit_request(messages_request(4), budget=Budget(window=100_000))
    entries = find_logged(fitted.envelope.entries)
    called = [entry for entry in entries if entry.segment.kind in ("tool_call", "tool_result")]
    assert len(called) == 8
    tokens = fitted.envelope.tokens
    some_line = fit_small().ledger.lines  # of another conversation: it only says that something is lowered
    cut = Cut(number=1, reason="over the trigger", before=10 * tokens, lowered=1)
    ledger = msgspec.structs.replace(fitted.ledger, cuts=(cut,), lines=some_line)
    own_tools = (OwnTool(definition=Tool(name=tool), answer=UNUSED),)
    sent = fitted.envelope.account.uncalibrated
    recalled = sum(entry.tokens for entry in called) if is_own else 0
    assert (
        measure(msgspec.structs.replace(fitted, ledger=ledger, own_tools=own_tools)) == 11 * sent - recalled
    )


@pytest.mark.parametrize(("measured", "bound"), [(500, 500), (501, 3_000), (999, 3_000)])
def test_what_an_upstream_counted_is_believed_up_to_half_of_the_trigger(measured: int, bound: int) -> None:
    """The gateway's own count may be twice that, so above it the request has to be counted."""
    message = {"role": "user"}
    body: Any = SimpleNamespace(turns=(message,), bounds=(3_000,), head_bytes=0)
    conversation = make_conversation(requests=1)
    conversation.measured = CountedRequest(tokens=measured, turns=(message,), head_bytes=0)
    assert _bound_next(body, conversation, 1_000) == bound
