"""LiteLLM, as a library and as a proxy: a callback with which every request that LiteLLM sends is fitted.

    litellm.callbacks = [LaminaLogger(budget=16_000)]
    answer = await litellm.acompletion(model="…", messages=history, tools=tools)

LiteLLM writes each call in the words of its provider's API and sends it over httpx. `LaminaLogger` puts a
relay in front of the transports that LiteLLM makes, as `lamina.transport` does, which is awake while the
logger is among `litellm.callbacks`. So a call is fitted as it leaves, whole or in a stream, and recalls are
answered inside it. Conversations are recognised by their content.

Not fitted are calls without `await`, providers that do not send over httpx or speak none of lamina's APIs,
and requests that AWS's signature protects: use `lamina.fit_request` there.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

from lamina.conversations.events import Listeners
from lamina.core.values import Budget
from lamina.fitting.policy import Policy, choose_policy
from lamina.stores.port import Store
from lamina.wrapped.in_process import CallOutcome, InProcessRelay, RunningCall
from lamina.wrapped.sdk_transports import SleepingTransport

__all__ = ["LaminaLogger"]

_create_transport = AsyncHTTPHandler.create_async_transport


class LaminaLogger(CustomLogger):
    """Fits each call of a model into the window. `policy` says how; `budget` replaces that of the policy.

    Without a budget the window of the model counts. With a `store` conversations go on after a restart.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        store: Store | str | PathLike[str] | None = None,
        key: Any = None,
    ) -> None:
        super().__init__()
        chosen_policy = choose_policy(policy, budget=budget, place="LaminaLogger")
        self.relay = InProcessRelay(chosen_policy, store=store, key=key, listeners=Listeners())
        AsyncHTTPHandler.create_async_transport = staticmethod(_create_sleeping)
        litellm.in_memory_llm_clients_cache.flush_cache()  # clients that were made before


def _create_sleeping(*arguments: Any, **options: Any) -> SleepingTransport:
    """A transport as LiteLLM makes it, with a relay in front."""
    return SleepingTransport(_create_transport(*arguments, **options), find_running=_find_running)


def _find_running() -> RunningCall | None:
    for callback in litellm.callbacks:
        if isinstance(callback, LaminaLogger):
            return RunningCall(callback.relay, CallOutcome())
    return None
