"""Requests that do not fit: told apart, cut, continued, forked, and the same after a restart."""

from __future__ import annotations

import asyncio
import json
import threading
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lamina import Budget
from lamina.caches.lifetimes import FOR_EVER
from lamina.conversations.record import count_compactions
from lamina.conversations.store import (
    conversation_workspace,
    decode_state,
    list_conversations,
    read_record,
)
from lamina.dialects import DIALECTS
from lamina.fitting import Fitted, fit_request
from lamina.fitting.request import fit_after_passed
from lamina.relay import fit_call
from lamina.relay.policies import PauseBook
from lamina.stores import Where, open_store
from lamina.stores.paging import every_conversation
from tests.cli.running import run
from tests.gateway.growing import HEADERS, chat_request, dump, messages_request
from tests.gateway.running import open_client, proxied, read_files, run_gateway, settings_for, until
from tests.gateway.upstream_stub import SeenRequest, answer_with, response, run_stub

pytestmark = pytest.mark.anyio

SMALL: dict[str, Any] = {"upstream": {"budget": Budget(window=8_000, reserve=500)}}


async def post(
    client: aiohttp.ClientSession,
    url: str,
    request: dict[str, Any],
    path: str = "/v1/messages",
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    async with client.post(url + path, data=dump(request), headers=HEADERS | (headers or {})) as answer:
        return answer.status, await answer.read()


async def states(store: Path, workspace: str = "default") -> dict[str, Any]:
    """The state of every conversation in a store, by its name."""
    async with open_store(str(store)) as opened:
        place = conversation_workspace(workspace)
        heads = [head async for head in every_conversation(opened, place)]
        names = [head.conversation for head in heads]
        pages = [await opened.read(Where(place, name), last=0) for name in names]
        return {name: decode_state(page.head.state) for name, page in zip(names, pages, strict=True)}


def shared_messages(before: dict[str, Any], after: dict[str, Any]) -> int:
    """How many messages at the start are the same in both."""
    count = 0
    for old, new in zip(before["messages"], after["messages"], strict=False):
        if old != new:
            break
        count += 1
    return count


async def test_a_growing_conversation_is_cut_seldom_and_continues_between_cuts(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    async with proxied(store, **SMALL) as (stub, gateway, client):
        for steps in range(30):
            status, _ = await post(client, gateway.url, messages_request(steps))
            assert status == 200
        assert 1 <= len(gateway.events("cut")) <= 6
        sent = [seen.json for seen in stub.seen]
    breaks = 0
    for before, after in pairwise(sent):
        assert DIALECTS["anthropic"].wire.check(after) == []
        if shared_messages(before, after) < len(before["messages"]):
            breaks += 1
        else:
            assert after["tools"] == before["tools"]
    [state] = (await states(store)).values()
    assert breaks == len(state.ledger.cuts)
    assert state.requests == 30


def test_a_conversation_that_was_killed_before_it_was_saved_keeps_its_name(tmp_path: Path) -> None:
    """What no request depends on is saved a moment later. The gateway after a kill finds an empty store."""

    async def converse_from(first: int, store: Path, **fields: Any) -> set[str]:
        async with proxied(store) as (_, gateway, client):
            for steps in range(first, first + 2):
                status, _ = await post(client, gateway.url, messages_request(steps, **fields))
                assert status == 200
            return {event["conversation"] for event in gateway.events("answered")}

    before = asyncio.run(converse_from(0, tmp_path / "before.db"))
    assert len(before) == 1
    assert asyncio.run(converse_from(2, tmp_path / "after.db")) == before
    title = asyncio.run(converse_from(0, tmp_path / "title.db", system="Give this a title."))
    assert title.isdisjoint(before)


async def test_ids_keep_apart_what_begins_alike_and_sub_agents_have_a_parent(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    session = {"x-claude-code-session-id": "s1"}
    async with proxied(store) as (_, gateway, client):
        for steps in range(3):
            await post(client, gateway.url, messages_request(steps), headers=session)
            agent = session | {"x-claude-code-agent-id": "a1"}
            await post(client, gateway.url, messages_request(steps, task="Sub."), headers=agent)
            await post(client, gateway.url, messages_request(steps), headers={"x-lamina-conversation": "n"})
        title = messages_request(0, system="Write a title.")
        await post(client, gateway.url, title, headers=session)
    found = sorted((state.group, state.parent, state.requests) for state in (await states(store)).values())
    assert found == [
        ("claude-code:s1", "", 1),
        ("claude-code:s1", "", 3),
        ("claude-code:s1:a1", "claude-code:s1", 3),
        ("name:n", "", 3),
    ]


async def test_a_moved_marker_and_a_string_for_a_block_are_the_same_message(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    block = {"type": "text", "text": "Do it.", "cache_control": {"type": "ephemeral"}}
    async with proxied(store) as (_, gateway, client):
        marked = messages_request(0)
        marked["messages"][0]["content"] = [block]
        await post(client, gateway.url, marked)
        await post(client, gateway.url, messages_request(1))
    [state] = (await states(store)).values()
    assert state.requests == 2


def test_an_edited_history_is_a_fork_with_the_common_ledger(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"

    async def main() -> list[dict[str, Any]]:
        async with proxied(store, **SMALL) as (stub, gateway, client):
            for steps in range(20):
                await post(client, gateway.url, messages_request(steps))
            edited = messages_request(19)
            edited["messages"].append({"role": "assistant", "content": "Stop."})
            edited["messages"].append({"role": "user", "content": "No, go on."})
            edited["messages"][-4]["content"][0]["text"] = "Another step."
            await post(client, gateway.url, edited)
            return [seen.json for seen in stub.seen]

    *_, last, fork = asyncio.run(main())
    assert shared_messages(last, fork) >= len(last["messages"]) - 4
    assert DIALECTS["anthropic"].wire.check(fork) == []
    kept_states = asyncio.run(states(store))
    main_line, branch = sorted(kept_states.values(), key=lambda state: -state.requests)
    assert branch.parent in kept_states
    assert (main_line.requests, branch.requests) == (20, 1)
    assert len(branch.ledger.lines) + len(branch.ledger.folds) > 0
    assert branch.inherited_cuts == count_compactions(branch.ledger) > 0
    listed = json.loads(run("log", "--store", store, "--json").out)["conversations"]
    assert {talk["requests"]: talk["cuts"] > 0 for talk in listed} == {20: True, 1: False}


async def test_a_retry_sends_the_same_bytes_and_parallel_requests_agree(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    async with proxied(store, **SMALL) as (stub, gateway, client):
        for steps in range(12):
            await post(client, gateway.url, messages_request(steps))
        before = len(stub.seen)
        await asyncio.gather(*(post(client, gateway.url, messages_request(13)) for _ in range(8)))
        bodies = [seen.body for seen in stub.seen[before:]]
    assert len(bodies) == 8
    assert len(set(bodies)) == 1
    assert len(await states(store)) == 1


async def test_two_requests_that_part_and_are_fitted_at_once_are_two_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was fitted as what goes on with the one conversation. The second of them is found anew."""
    store = tmp_path / "gateway.db"
    both_fit = threading.Barrier(2)
    numbers = count()

    def fit_together(*arguments: Any, **options: Any) -> Fitted:
        if next(numbers) < 2:
            both_fit.wait(60)
        return fit_request(*arguments, **options)

    one, other = messages_request(13), messages_request(13)
    other["messages"][-1]["content"][0]["content"] = "The file is empty."
    async with proxied(store, **SMALL) as (_, gateway, client):
        for steps in range(12):
            await post(client, gateway.url, messages_request(steps))
        monkeypatch.setattr(fit_call, "fit_request", fit_together)
        await asyncio.gather(*(post(client, gateway.url, request) for request in (one, other)))
    kept_states = await states(store)
    assert sorted(state.requests for state in kept_states.values()) == [1, 13]
    assert {state.parent for state in kept_states.values() if state.requests == 1} <= set(kept_states)


STEPS = 24
_TWIN: list[bytes] = []


async def twin_of(folder: Path, *, steps: int = STEPS) -> list[bytes]:
    """What an upstream sees of a conversation if its gateway lives on. It is played once for all tests."""
    if not _TWIN:
        async with proxied(folder / "twin.db", **SMALL) as (stub, gateway, client):
            for step in range(STEPS):
                await post(client, gateway.url, messages_request(step))
        _TWIN.extend(seen.body for seen in stub.seen)
    return _TWIN[:steps]


async def test_a_restart_before_every_request_changes_nothing(tmp_path: Path) -> None:
    twin = await twin_of(tmp_path)
    async with run_stub() as stub, open_client() as client:
        settings = settings_for(stub, tmp_path / "restarted.db", **SMALL)
        for step in range(STEPS):
            async with run_gateway(settings) as gateway:
                await post(client, gateway.url, messages_request(step))
        assert [seen.body for seen in stub.seen] == twin


async def test_a_conversation_that_was_never_cut_is_stored_once_by_two_gateways(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    steps = 6
    async with run_stub() as stub, open_client() as client:
        settings = settings_for(stub, store, workers=2, keep="all")
        async with run_gateway(settings) as first, run_gateway(settings) as second:
            for step in range(steps):
                gateway = (first, second)[step % 2]
                await post(client, gateway.url, messages_request(step, size=20))
    async with open_store(str(store)) as opened:
        names = [kept.name async for kept in list_conversations(opened, "default")]
        assert [len((await read_record(opened, "default", name)).calls) for name in names] == [steps]


async def test_off_passes_one_request_untouched(tmp_path: Path) -> None:
    async with proxied(tmp_path / "gateway.db", **SMALL) as (stub, gateway, client):
        request = messages_request(30)
        status, _ = await post(client, gateway.url, request, headers={"x-lamina": "off"})
        assert status == 200
        assert stub.seen[-1].body == dump(request)
        assert "x-lamina" not in stub.seen[-1].header_map
        await post(client, gateway.url, request)
        assert stub.seen[-1].body != dump(request)


async def test_nothing_is_on_disk_if_nothing_may_be_kept(tmp_path: Path) -> None:
    async with proxied(tmp_path / "gateway.db", keep="nothing", **SMALL) as (_, gateway, client):
        for steps in range(0, 21, 4):
            await post(client, gateway.url, messages_request(steps))
        assert gateway.events("cut")
    assert read_files(tmp_path) == b""


async def test_a_sealed_store_shows_no_content(tmp_path: Path) -> None:
    from lamina.stores.sealed import init_file  # noqa: PLC0415 - an extra

    init_file(tmp_path / "app.key")
    store = tmp_path / "gateway.db"
    settings: dict[str, Any] = {"key_file": str(tmp_path / "app.key"), "keep": "all", **SMALL}
    async with run_stub() as stub, open_client() as client:
        for steps in (4, 12, 20):
            async with run_gateway(settings_for(stub, store, **settings)) as gateway:
                status, _ = await post(client, gateway.url, messages_request(steps))
                assert status == 200
        sent = stub.seen[-1].json
        assert len(json.dumps(sent)) < len(dump(messages_request(20)))
    content = read_files(tmp_path)
    assert content
    assert b"function_" not in content
    assert b"claude-sonnet" not in content


async def test_the_window_that_an_upstream_reports_is_kept(tmp_path: Path) -> None:
    """The model's window is not known; the upstream refuses, and the next requests fit at once."""
    store = tmp_path / "gateway.db"
    async with proxied(store) as (stub, gateway, client):
        stub.window = 20_000  # bytes, in this stub
        statuses = [(await post(client, gateway.url, messages_request(steps)))[0] for steps in range(6, 18)]
        assert statuses == [200] * 12
        refused = len(stub.seen) - 12
        assert 1 <= refused <= 3
    [state] = (await states(store)).values()
    assert state.windows


async def test_a_request_that_is_refused_late_as_too_long_takes_back_no_cut_of_a_later_one(
    tmp_path: Path,
) -> None:
    """A client that did not wait has continued its conversation meanwhile."""
    waits, refuses = asyncio.Event(), asyncio.Event()

    async def refuse_late(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        waits.set()
        await refuses.wait()
        error = b'{"error": {"message": "prompt is too long: 9000 tokens > 3000 maximum"}}'
        writer.write(response(400, "application/json", error))

    async with proxied(tmp_path / "gateway.db", **SMALL) as (stub, gateway, client):
        stub.play(refuse_late)
        first = asyncio.create_task(post(client, gateway.url, messages_request(8)))
        await waits.wait()
        await post(client, gateway.url, messages_request(18))
        refuses.set()
        assert (await first)[0] == 400
        await post(client, gateway.url, messages_request(19))
        assert len(gateway.events("cut")) == 1
        *_, cut, last = [seen.json for seen in stub.seen]
    assert shared_messages(cut, last) >= len(cut["messages"]) - 1


async def test_a_request_that_continues_what_only_the_server_has_passes_as_it_came(tmp_path: Path) -> None:
    """Its items alone are a result without a call, and more than the window holds."""
    item = {"type": "function_call_output", "call_id": "c1", "output": "word " * 20_000}
    requests: list[dict[str, Any]] = [
        {"model": "gpt-5", "input": [item], "previous_response_id": "resp_1"},
        {"model": "gpt-5", "input": [item], "conversation": {"id": "conv_1"}},
    ]
    async with proxied(tmp_path / "gateway.db", **SMALL) as (stub, gateway, client):
        for request in requests:
            await post(client, gateway.url, request, "/v1/responses")
        assert [seen.body for seen in stub.seen] == [dump(request) for request in requests]
        reasons = [event["reason"] for event in gateway.events("passed")]
        assert reasons == ["previous_response_id", "conversation"]
        assert {event["conversation"] for event in gateway.events("answered")} == {""}


@pytest.mark.parametrize(("reported", "is_counted"), [(38_000, False), (1_000, True)])
async def test_a_request_is_not_counted_if_its_upstream_reported_far_less_than_the_trigger(
    reported: int,
    is_counted: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its bytes the second request may be over the trigger. 1,000 tokens cannot be all of the first."""
    counted_lengths: list[int] = []

    def note_and_fit(request: Any, *passed: Any, **options: Any) -> Any:
        counted_lengths.append(len(request["messages"]))
        return fit_after_passed(request, *passed, **options)

    report = answer_with({"choices": [], "usage": {"prompt_tokens": reported, "completion_tokens": 1}})
    monkeypatch.setattr(fit_call, "fit_after_passed", note_and_fit)
    first: list[dict[str, Any]] = [{"role": "user", "content": "some words " * 13_600}]
    second = [*first, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "words " * 7_500}]
    async with proxied(upstream={"budget": Budget(window=190_000, reserve=1_000)}) as (stub, gateway, client):
        stub.play(report, report)
        path = "/v1/chat/completions"
        assert (await post(client, gateway.url, {"model": "gpt-5", "messages": first}, path))[0] == 200
        assert await until(lambda: bool(gateway.events("answered")), 30)  # read after the answer
        assert (await post(client, gateway.url, {"model": "gpt-5", "messages": second}, path))[0] == 200
        assert [len(seen.json["messages"]) for seen in stub.seen] == [1, 3]
    assert (3 in counted_lengths) is is_counted


async def test_a_result_that_was_sent_in_full_is_not_shortened_as_if_it_were_new() -> None:
    """The large result fits beside the first prompt. Its share is smaller once there is a history.

    Neither request is cut, so the second has all messages of the first. By its bytes it may be too long.
    """
    system = {"role": "system", "content": "word " * 3_000}
    requests: list[dict[str, Any]] = []
    for steps in (1, 2):
        request = chat_request(steps, model="gpt-4o", size=1_200)
        request["messages"][0] = system
        request["messages"][3]["content"] = "word " * 5_000
        requests.append(request)
    async with proxied(upstream={"budget": Budget(window=10_000, reserve=500)}) as (stub, gateway, client):
        for request in requests:
            await post(client, gateway.url, request, "/v1/chat/completions")
        assert gateway.events("cut") == []
        assert [seen.json for seen in stub.seen] == requests


async def test_the_first_request_of_a_conversation_ends_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is refused: a client that tries again and again makes no longer pauses."""
    pauses: list[float] = []
    monkeypatch.setattr(PauseBook, "add", lambda _, __, pause: pauses.append(pause))
    async with proxied() as (stub, gateway, client):
        for steps, status in ((1, 200), (2, 400), (2, 400), (2, 200)):
            if status != 200:
                stub.play(answer_with({}, status=status))
            assert (await post(client, gateway.url, messages_request(steps)))[0] == status
    first, second = pauses
    assert first == FOR_EVER
    assert 0 <= second < FOR_EVER
