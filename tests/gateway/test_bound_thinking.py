"""A tool loop with bound thinking through the gateway, to an upstream that enforces the binding."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import anthropic
import pytest

from lamina.dialects.anthropic.server import BETAS
from lamina.gateway import GatewaySettings
from tests.fitting.test_bound_loop import (
    REQUEST,
    STEPS,
    WINDOW,
    check_recall_stays,
    make_script,
    open_wrapped,
    run_loop,
)
from tests.gateway.running import run_gateway, settings_for
from tests.servers.bound_thinking import BoundModel, bound_model


async def loop_through_gateway(
    model: BoundModel, store: Path, *, restart_after: int = STEPS * 9, stream: bool = False, **upstream: Any
) -> str:
    """What the client says at its end. The gateway starts anew after so many requests, from its store."""
    settings = settings_for(model.url, store, upstream={"budget": 6_000} | upstream)
    headers = {BETAS: "mine-2026", "x-lamina-conversation": "loop"}
    loop = asyncio.get_running_loop()
    calls = count()
    url = ""

    async def send(request: dict[str, Any]) -> Any:
        nonlocal url
        if next(calls) % restart_after == 0:
            await gateways.aclose()
            gateway = await gateways.enter_async_context(run_gateway(settings))
            url = gateway.url
        async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
            if not stream:
                return await client.messages.create(**request, extra_headers=headers)
            async with client.messages.stream(**request, extra_headers=headers) as events:
                return await events.get_final_message()

    def create(**request: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(send(request), loop).result()

    async with AsyncExitStack() as gateways:
        said, _ = await asyncio.to_thread(run_loop, create)
    return said


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_is_longer_than_the_window_and_the_gateway_starts_anew_in_it(
    tmp_path: Path, *, stream: bool
) -> None:
    with bound_model(make_script(STEPS, recall_at=(9, STEPS - 2))) as model:
        store = tmp_path / "gateway.db"
        said = asyncio.run(loop_through_gateway(model, store, restart_after=5, stream=stream))
    assert model.refused == []
    assert said == f"Done after {STEPS}."
    check_recall_stays(model)
    assert all("mine-2026" in betas for betas in model.betas)


def test_an_upstream_that_refuses_the_switch_gets_the_request_without_it(tmp_path: Path) -> None:
    with bound_model(make_script(STEPS), knows_switch=False) as model:
        with pytest.raises(anthropic.BadRequestError, match="thinking in this tool loop") as caught:
            asyncio.run(loop_through_gateway(model, tmp_path / "gateway.db", budget=2_500))
        assert "system text" not in str(caught.value)
    assert model.refused == ["thinking.adaptive.block_binding: Extra inputs are not permitted"]
    assert not any(model.binding.switched)


def test_thinking_from_before_the_store_was_lost_is_dropped_by_the_server(tmp_path: Path) -> None:
    """It is bound to what was sent then, and nobody knows that any more. The client sends it all the same."""
    settings = [tmp_path / "new.db", tmp_path / "new.db", tmp_path / "newer.db"]
    with bound_model(make_script(STEPS)) as model:
        with open_wrapped(model, window=WINDOW) as client:
            _, messages = run_loop(client.messages.create)
        for number, store in enumerate(settings):
            messages.append({"role": "user", "content": f"And now? {number}"})
            asyncio.run(ask_through_gateway(model, store, messages))
    assert len(model.refused) == 2, "a conversation asks for it once it was refused, after a restart, too"
    assert all("bound to a different conversation" in refusal for refusal in model.refused)


async def ask_through_gateway(model: BoundModel, store: Path, messages: list[Any]) -> None:
    """Send a history with its question, and add the answer to it."""
    settings = settings_for(model.url, store, upstream={"budget": 200_000})
    async with run_gateway(settings) as gateway:
        client = anthropic.AsyncAnthropic(base_url=gateway.url, api_key="none", max_retries=0)
        async with client:
            answer = await client.messages.create(**REQUEST, messages=messages)
    content = [block.model_dump(mode="json", exclude_unset=True) for block in answer.content]
    messages.append({"role": "assistant", "content": content})


def test_an_upstream_that_refuses_the_thinking_and_the_switch_answers_the_request_of_the_client(
    tmp_path: Path,
) -> None:
    """The client reads what is wrong with its own request, not with a field that it did not send."""
    with bound_model(make_script(STEPS)) as model:
        with open_wrapped(model, window=WINDOW) as client:
            _, messages = run_loop(client.messages.create)
        model.binding.knows_switch = False
        messages.append({"role": "user", "content": "And now?"})
        with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
            asyncio.run(ask_through_gateway(model, tmp_path / "gateway.db", messages))


def test_a_late_refusal_takes_back_no_cut_of_a_later_request(tmp_path: Path) -> None:
    """A client that did not wait has continued its conversation before its first request was refused."""
    with bound_model(make_script(STEPS)) as model:
        with open_wrapped(model, window=WINDOW) as client:
            _, messages = run_loop(client.messages.create)
        settings = settings_for(model.url, tmp_path / "gateway.db", upstream={"budget": 16_000})
        asyncio.run(ask_two_at_once(model, settings, [*messages, {"role": "user", "content": "And now?"}]))


async def ask_two_at_once(model: BoundModel, settings: GatewaySettings, messages: list[Any]) -> None:
    """Ask, go on with a text that needs a cut before the first request is refused, and go on again."""
    waits = asyncio.Event()
    refuses = threading.Event()
    loop = asyncio.get_running_loop()
    answer = model.answer

    def answer_late(request: dict[str, Any], betas: str) -> tuple[int, str, str]:
        status, media_type, text = answer(request, betas)
        if status != HTTPStatus.OK:
            loop.call_soon_threadsafe(waits.set)
            refuses.wait()
        return status, media_type, text

    model.answer = answer_late  # type: ignore[method-assign]
    async with run_gateway(settings) as gateway:
        client = anthropic.AsyncAnthropic(base_url=gateway.url, api_key="none", max_retries=0)
        async with client:
            ask = partial(client.messages.create, **REQUEST, extra_headers={"x-lamina-conversation": "loop"})
            first = asyncio.create_task(ask(messages=messages))
            await waits.wait()
            longer = [*messages, {"role": "user", "content": "What about this? " * 2_000}]
            await ask(messages=longer)
            refuses.set()
            with pytest.raises(anthropic.InternalServerError, match="another request has continued"):
                await first
            await ask(messages=[*longer, {"role": "user", "content": "Well?"}])
        assert len(gateway.events("cut")) == 1
