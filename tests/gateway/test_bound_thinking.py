"""A tool loop with bound thinking through the gateway, to an upstream that enforces the binding."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import pytest

from lamina.dialects.anthropic.server import BETAS, BINDING_BETA
from tests.fitting.test_bound_loop import (
    STEPS,
    check_recall_stays,
    make_script,
    run_loop,
)
from tests.gateway.running import run_gateway, settings_for
from tests.servers.bound_thinking import BoundModel, bound_model


async def loop_through_gateway(
    model: BoundModel, store: Path, *, gateways: int = 1, stream: bool = False, **upstream: Any
) -> str:
    """What the client says at its end. With several gateways each takes the next request, from one store."""
    settings = settings_for(model.url, store, upstream={"window": 6_000} | upstream)
    calls = 0

    def create(**request: Any) -> Any:
        nonlocal calls
        calls += 1
        headers = {BETAS: "mine-2026", "x-lamina-conversation": "loop"}
        return asyncio.run_coroutine_threadsafe(send(request, headers), loop).result()

    async def send(request: dict[str, Any], headers: dict[str, str]) -> Any:
        async with (
            run_gateway(settings) as gateway,
            anthropic.AsyncAnthropic(base_url=gateway.url, api_key="none", max_retries=0) as client,
        ):
            if not stream:
                return await client.messages.create(**request, extra_headers=headers)
            async with client.messages.stream(**request, extra_headers=headers) as events:
                return await events.get_final_message()

    loop = asyncio.get_running_loop()
    said, _ = await asyncio.to_thread(partial(run_loop, create, max_tokens=500))
    return said


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_goes_on_for_ever_though_the_gateway_starts_anew_for_each_request(
    tmp_path: Path, *, stream: bool
) -> None:
    with bound_model(make_script(STEPS, recall_at=(9, STEPS - 2))) as model:
        said = asyncio.run(loop_through_gateway(model, tmp_path / "gateway.db", stream=stream))
    assert model.refused == []
    assert said == f"Done after {STEPS}."
    check_recall_stays(model)
    assert all("mine-2026" in betas for betas in model.betas)


def test_an_upstream_that_refuses_the_switch_gets_the_request_without_it(tmp_path: Path) -> None:
    with bound_model(make_script(STEPS), knows_switch=False) as model:
        with pytest.raises(anthropic.BadRequestError, match="thinking in this tool loop") as caught:
            asyncio.run(loop_through_gateway(model, tmp_path / "gateway.db", window=2_500))
        assert "system text" not in str(caught.value)
    assert {problem.partition(":")[0] for problem in model.refused} == {"thinking.adaptive.block_binding"}
    assert not any(model.binding.switched)


def test_the_switch_can_be_turned_off(tmp_path: Path) -> None:
    with (
        bound_model(make_script(STEPS)) as model,
        pytest.raises(anthropic.BadRequestError, match="thinking in this tool loop"),
    ):
        asyncio.run(loop_through_gateway(model, tmp_path / "gateway.db", window=2_500, drop_block=False))
    assert model.refused == []
    assert not any(BINDING_BETA in betas for betas in model.betas)
