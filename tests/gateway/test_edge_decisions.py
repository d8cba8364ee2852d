"""Single decisions at the gateway's edge: who may ask, what a body may be, what goes on, how it starts."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina.conversations.costs import price_usage
from lamina.conversations.recall_filter import UsageSum, add_output, find_usage_object
from lamina.conversations.store import ConversationState
from lamina.core.tokens import Counter
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from lamina.fitting.policy import Policy
from lamina.gateway import conversation_index, limits, serving
from lamina.gateway.account import GatewayAccount
from lamina.gateway.answered_requests import AnsweredRequest, MeasuredConversation, UncutRequest
from lamina.gateway.config import (
    AccessToken,
    GatewaySettings,
    UpstreamSettings,
    check_settings,
)
from lamina.gateway.conversation_index import ConversationIndex, LiveConversation
from lamina.gateway.profiles import add_salt
from lamina.gateway.refusals import Refusal
from lamina.gateway.request_bodies import decode_body, decode_value
from lamina.gateway.security import Visitor, admit_visitor
from lamina.gateway.store_access import GatewayStore
from lamina.gateway.turn_memory import TurnMemory
from lamina.gateway.upstreams import Upstream, Upstreams, request_headers
from lamina.stores.port import StoredHead

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
SERVER = UpstreamSettings(url="http://127.0.0.1:9", profile="openai")
TOKEN = AccessToken(sha256=sha256(b"open").hexdigest(), workspace="team")


# Who may ask


def admit(settings: GatewaySettings, host: str, **headers: str) -> Visitor:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return admit_visitor([(b"host", host.encode()), *named], settings)


def test_without_tokens_everybody_is_in_the_same_workspace() -> None:
    assert admit(GatewaySettings(), "127.0.0.1:8080") == Visitor("default", key_is_token=False)


def test_a_token_opens_its_workspace_from_either_header() -> None:
    settings = GatewaySettings(tokens=(TOKEN,))
    own_header = admit(settings, "localhost", x_lamina_token="open")  # noqa: S106 - a token of this test
    assert own_header == Visitor("team", key_is_token=False)
    assert admit(settings, "localhost", x_api_key="open") == Visitor("team", key_is_token=True)
    for headers in ({}, {"x_api_key": ""}, {"x_api_key": "shut"}):
        with pytest.raises(Refusal, match="missing or wrong") as refused:
            admit(settings, "localhost", **headers)
        assert refused.value.status == 401


@pytest.mark.parametrize(
    ("address", "hosts", "asked", "is_served"),
    [
        ("0.0.0.0", (), "any.example", True),  # noqa: S104 - the token decides
        ("0.0.0.0", ("own.example",), "own.example", True),  # noqa: S104
        ("0.0.0.0", ("own.example",), "any.example", False),  # noqa: S104
        ("0.0.0.0", ("own.example",), "10.0.0.7", True),  # noqa: S104
        ("127.0.0.1", (), "any.example", False),
        ("127.0.0.1", ("own.example",), "own.example", True),
        ("127.0.0.1", ("own.example",), "10.0.0.7", False),
    ],
)
def test_which_names_are_served_depends_on_the_address(
    address: str, hosts: tuple[str, ...], asked: str, *, is_served: bool
) -> None:
    settings = GatewaySettings(host=address, hosts=hosts, tokens=(TOKEN,))
    if is_served:
        assert admit(settings, asked, x_api_key="open").workspace == "team"
        return
    with pytest.raises(Refusal) as refused:
        admit(settings, asked, x_api_key="open")
    assert refused.value.status == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7"])
@pytest.mark.parametrize("tokens", [(), (TOKEN,)])
def test_only_a_public_gateway_needs_a_token(host: str, tokens: tuple[AccessToken, ...]) -> None:
    settings = GatewaySettings(host=host, tokens=tokens)
    if host == "127.0.0.1" or tokens:
        check_settings(settings, {})
        return
    with pytest.raises(BadInput, match="no access token is set"):
        check_settings(settings, {})


# What a body may be


@pytest.mark.parametrize(("limit", "is_taken"), [(2, True), (1, False)])
def test_a_body_may_have_as_many_tools_as_the_limit(
    limit: int, monkeypatch: pytest.MonkeyPatch, *, is_taken: bool
) -> None:
    text = b'{"model":"m","tools":[{"name":"a"},{"name":"b"}]}'
    monkeypatch.setattr(limits, "TOOLS", limit)
    if is_taken:
        assert len(decode_body(text, TurnMemory()).request["tools"]) == 2
        return
    with pytest.raises(Refusal, match="tools has 2 items; the limit is 1") as refused:
        decode_body(text, TurnMemory())
    assert refused.value.status == 413


@pytest.mark.parametrize("text", [b'{"model":"m"}', b'{"model":"m","input":"Hello."}', b"{}"])
def test_a_body_without_messages_is_decoded_without_any(text: bytes) -> None:
    body = decode_body(text, TurnMemory())
    assert body.request == json.loads(text)
    assert body.turns == ()
    assert body.new_bytes == 0
    assert body.turn_bytes == 0
    assert body.head_bytes == len(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [(b'{"first":1,"second":2,"second":3}', "second"), (b'{"a":{"b":1, "c":2, "b":3}}', "b")],
)
def test_the_key_that_is_there_twice_is_named(text: bytes, key: str) -> None:
    with pytest.raises(Refusal, match=f"place has the key '{key}' twice"):
        decode_value(text, "place")


def test_half_of_a_character_is_named_and_any_other_error_is_told_as_it_is() -> None:
    with pytest.raises(Refusal, match=r"place is not JSON: \\ud83d is half of a character"):
        decode_value(rb'{"a":"\ud83d"}', "place")
    with pytest.raises(Refusal, match="place is not JSON: ") as refused:
        decode_value(b'{"a":', "place")
    assert "half of a character" not in refused.value.message


# What goes to an upstream


def test_a_salt_is_of_the_workspace_unless_the_client_has_one() -> None:
    own: Json = {"model": "m", "cache_salt": "mine"}
    assert add_salt(own, "team") is own
    salted = add_salt({"model": "m"}, "team")
    assert salted["model"] == "m"
    assert len(salted["cache_salt"]) == 32
    assert salted == add_salt({"model": "m"}, "team")
    assert salted != add_salt({"model": "m"}, "other")


def test_headers_after_one_that_is_not_sent_are_sent() -> None:
    headers = [
        (b"accept", b"*/*"),
        (b"host", b"gateway"),
        (b"x-lamina-token", b"open"),
        (b"x-forwarded-for", b"10.0.0.7"),
        (b"user-agent", b"client"),
        (b"authorization", b"Bearer key"),
    ]
    sent = request_headers(headers, Upstream("up", SERVER), environment={})
    assert dict(sent) == {"accept": "*/*", "user-agent": "client", "authorization": "Bearer key"}


def test_a_model_that_no_upstream_serves_is_not_found() -> None:
    only_small = msgspec.structs.replace(SERVER, models=("small-*",))
    upstreams = Upstreams(GatewaySettings(upstreams={"up": only_small}))
    assert upstreams.choose("openai_chat", "small-1").name == "up"
    for dialect, model in (("openai_chat", "large-1"), ("anthropic", "small-1")):
        with pytest.raises(Refusal, match="no upstream serves this model") as refused:
            upstreams.choose(dialect, model)
        assert refused.value.status == 404


# The usage of an answer with recalls in it


def test_a_total_is_summed_only_where_the_api_reports_one() -> None:
    earlier = [{"output_tokens": 5, "total_tokens": 105}]
    assert add_output({"output_tokens": 7}, earlier) == {"output_tokens": 12}
    summed = add_output({"output_tokens": 7, "total_tokens": 207}, earlier)
    assert summed == {"output_tokens": 12, "total_tokens": 212}
    assert add_output({"outputTokens": 2, "totalTokens": 9}, [{"outputTokens": 4}]) == {
        "outputTokens": 6,
        "totalTokens": 13,
    }


def test_an_event_without_usage_stays_as_it_is() -> None:
    event: Json = {"type": "content_block_delta", "delta": {"text": "Hello"}}
    assert find_usage_object(event) == ((), {})
    usage = UsageSum()
    usage.read({"usage": {"output_tokens": 5}})
    usage.next_round()
    usage.read(event)
    assert usage.complete(event) is event
    last = usage.complete({"usage": {"output_tokens": 7}})
    assert last == {"usage": {"output_tokens": 12}}


# The page that describes the gateway


# How a gateway starts


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[GatewaySettings]:
    """The settings with which `serve` has started a server; none is started."""
    settings: list[GatewaySettings] = []
    monkeypatch.setattr(serving, "run_server", settings.append)
    monkeypatch.delenv("LAMINA_TOKEN", raising=False)
    return settings


def test_settings_are_taken_as_they_are_or_read_from_their_file(
    started: list[GatewaySettings], tmp_path: Path
) -> None:
    own = GatewaySettings(port=0, upstreams={"only": SERVER}, policy=Policy(keep="nothing"))
    serving.serve(settings=own)
    assert started.pop() == own
    file = tmp_path / "gateway.toml"
    file.write_text('port = 0\n[policy]\nkeep = "nothing"\n[upstreams.mine]\nurl = "http://127.0.0.1:9"\n')
    with pytest.raises(BadInput, match="profile"):
        serving.serve(settings=file)
    file.write_text(file.read_text() + 'profile = "vllm"\n')
    for path in (file, str(file)):
        serving.serve(settings=path)
        assert list(started.pop().upstreams) == ["mine"]
    serving.serve(port=0, store=tmp_path / "gateway.db")
    assert set(started.pop().upstreams) == {"anthropic", "openai", "gemini", "ollama"}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_policy_with_a_function_is_for_one_process_only(
    started: list[GatewaySettings], tmp_path: Path, workers: int
) -> None:
    policy = Policy(counter=Counter(name="characters", count=len))
    store = str(tmp_path / "gateway.db")
    settings = GatewaySettings(port=0, workers=workers, store=store, upstreams={"only": SERVER})
    if workers == 1:
        serving.serve(settings=settings, policy=policy)
        assert started.pop().policy.counter is policy.counter
        return
    with pytest.raises(BadInput, match="counter is not plain data"):
        serving.serve(settings=settings, policy=policy)
    assert not started


# Costs with nothing cut


MODEL = "claude-sonnet-5"


def answer(**fields: Any) -> AnsweredRequest:
    values: Json = {"conversation": "c", "model": MODEL, "input": 1_000} | fields
    return AnsweredRequest(**{"full": values["input"], **values})


def measure_all(*answers: AnsweredRequest) -> list[UncutRequest]:
    conversation = MeasuredConversation()
    uncut: list[UncutRequest] = []
    for each in answers:
        uncut.append(UncutRequest.measure(each, conversation))
        conversation = conversation.follow(each, uncut[-1])
    return uncut


def test_an_uncut_request_grows_by_what_was_sent_and_by_what_was_held_back() -> None:
    first, second = measure_all(
        answer(counted=1_000), answer(input=1_500, cached=900, counted=1_500, new=700, held_back=200)
    )
    assert first.tokens == 1_000
    assert second.tokens == 1_000 + 500 + 200
    assert second.missed == 100
    assert second.read == 1_000 - 100


def test_what_is_new_in_a_cut_is_scaled_by_all_growth_before_it() -> None:
    *_, cut = measure_all(
        answer(counted=1_000),
        answer(input=1_200, cached=1_000, counted=1_100, new=100),
        answer(input=1_600, cached=1_200, counted=1_300, new=200),
        answer(input=1_900, cached=1_600, counted=1_600),  # it has more tools, and no new message
        answer(input=900, full=2_300, cut=True, counted=800, new=100),
    )
    assert cut.tokens == 1_900 + 200  # the upstream counts two tokens where the gateway counts one
    assert cut.read == 1_900


def test_what_a_first_request_did_not_read_is_not_read_without_lamina_either() -> None:
    [first] = measure_all(answer(input=1_000, full=3_000, cached=800, unchanged=100))
    assert (first.tokens, first.read) == (3_000, 2_800)


def test_the_account_names_recalls_and_what_sub_agents_read_first() -> None:
    account = GatewayAccount()
    account.add(answer())
    assert "recall" not in account.write_lines()[0]
    account.add(answer(conversation="a", agent_of="c", input=500, cached=0))
    account.add(answer(conversation="a", agent_of="c", input=900, cached=500))
    account.add(answer(conversation="b", parent="a", agent_of="c", input=950, cached=900))
    [line] = [line for line in account.write_lines() if line.startswith("of it sub-agents")]
    assert "3 requests" in line
    assert "their first requests read 500 tokens, 0 of them from the cache" in line


def test_what_nobody_wrote_to_the_cache_is_not_paid_without_lamina_either() -> None:
    account = GatewayAccount()
    account.add(answer(input=1_000, cached=800))
    account.add(answer(input=600, full=1_500, new=500, counted=600, cut=True))
    first = price_usage(Usage(input=1_000, cached=800), MODEL)
    second = price_usage(Usage(input=1_500, cached=1_000), MODEL)
    assert first is not None
    assert second is not None
    assert account.cost_without == pytest.approx(first + second, abs=1e-9)


# What another process has written


class Records:
    """A store that has the records of one conversation, and counts how often they were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads = 0

    async def load(self, _: str, __: str) -> None:
        return None

    async def load_head(self, _: str, __: str) -> StoredHead:
        return StoredHead(count=self.count)

    async def load_records(self, _: str, __: str, *, after: int) -> list[bytes]:
        self.reads += 1
        return [b"{}"] * (self.count - after)


@pytest.mark.parametrize(("more", "reads"), [(0, 1), (1, 0)])
def test_a_record_is_learnt_unless_it_is_too_long(more: int, reads: int) -> None:
    store: Any = Records(conversation_index.MOST_LEARNT + more)
    conversation = LiveConversation("default", "name", "family", ConversationState())
    asyncio.run(ConversationIndex(store, shared=True).reload(conversation))
    assert store.reads == reads
    assert conversation.record.count == store.count


async def test_records_are_counted_also_before_there_is_a_state(tmp_path: Path) -> None:
    store = GatewayStore(GatewaySettings(store=str(tmp_path / "gateway.db"), upstreams={"only": SERVER}))
    await store.open()
    try:
        counts = [(await store.load_head("default", "name")).count]
        await store.append("default", "name", [b"one", b"two"], expect=0)
        counts.append((await store.load_head("default", "name")).count)
    finally:
        await store.close()
    assert counts == [0, 2]
