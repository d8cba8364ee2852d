"""LiteLLM, as a library and as a proxy: a callback that fits each chat completion.

    litellm.callbacks = [LaminaLogger(budget=16_000)]
    answer = await litellm.acompletion(model="…", messages=history, tools=tools)

A caller of LiteLLM sends its whole history each time, so conversations are recognised by their content, as a
wrapped client does. What was left out can be recalled: the model's calls of `recall` are answered inside the
completion (LiteLLM's agentic loop), and the caller never sees them. A stream is fitted without handles, since
nothing could answer a recall in the middle of it. `litellm.completion`, without `await`, calls no such hooks:
fit the request with `lamina.fit_request` there.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import litellm
import msgspec
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.utils import CallTypes

from lamina.adapters.bridge import RecentValues
from lamina.adapters.chat_turns import write_output_format
from lamina.conversations.conversations import Conversations
from lamina.conversations.pending_call import PendingCall
from lamina.conversations.recall_answers import strip_recalls
from lamina.core.values import Budget
from lamina.dialects.openai_chat import DIALECT
from lamina.dialects.usage import find_usage
from lamina.fitting.policy import Policy, choose_policy

__all__ = ["LaminaLogger"]

_PENDING = 1_024
"""How many calls may be under way at once. Of calls that never end the oldest are forgotten."""

_HEAD = ("model", "tools", "functions", "tool_choice", "max_tokens", "max_completion_tokens")
"""Arguments of a completion that matter for its size, besides `response_format`, which may be a class."""

_FOLLOW_UP = "lamina_follow_up"
"""Marks a completion that answers a recall: it is fitted already."""


class LaminaLogger(CustomLogger):
    """Fits each chat completion into the window. `policy` says how; `budget` replaces that of the policy.

    Without a budget the window of the model counts. If the policy turns recall off, no handles are shown.
    """

    def __init__(self, *, policy: Policy | None = None, budget: Budget | int | None = None) -> None:
        super().__init__()
        policy = choose_policy(policy, budget=budget, place="LaminaLogger")
        self._streamed = Conversations(msgspec.structs.replace(policy, recall="off"))
        self._answered = self._streamed
        if policy.recall != "off":
            self._answered = Conversations(policy)
        self._pending: RecentValues[str, PendingCall] = RecentValues(_PENDING)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: CallTypes | None
    ) -> dict[str, Any] | None:
        """Fit the messages just before they are sent.

        Other calls than chat completions pass, and so does a follow-up that answers a recall: it is
        fitted already. A stream belongs to conversations without handles, since nothing could answer a
        recall in it.
        """
        if call_type not in (CallTypes.acompletion, CallTypes.completion):
            return None
        if not isinstance(kwargs.get("messages"), list) or _is_follow_up(kwargs):
            return None
        streams = bool(kwargs.get("stream"))
        conversations = self._answered
        if streams:
            conversations = self._streamed
        request = {name: kwargs[name] for name in _HEAD if kwargs.get(name) is not None}
        request |= write_output_format(kwargs.get("response_format"))
        pending = PendingCall(
            conversations, DIALECT, {**request, "messages": kwargs["messages"]}, streams=streams
        )
        if streams:
            pending.finish()  # LiteLLM says when a stream ends only after the next call may have begun
        call_id = str(kwargs.setdefault("litellm_call_id", str(uuid4())))
        self._pending[call_id] = pending
        return {**kwargs, **_read_fitted(pending)}

    async def async_should_run_agentic_loop(  # noqa: PLR0917 - LiteLLM says which arguments it has
        self,
        response: Any,
        model: str,  # noqa: ARG002
        messages: Any,  # noqa: ARG002
        tools: Any,  # noqa: ARG002
        stream: bool,  # noqa: ARG002, FBT001
        custom_llm_provider: str,  # noqa: ARG002
        kwargs: dict[str, Any],
    ) -> tuple[bool, dict[str, Any]]:
        """Say whether the model only wants to recall something."""
        pending = self._pending.get(str(kwargs.get("litellm_call_id")))
        if pending is None or _is_follow_up(kwargs):
            return False, {}
        return pending.take_answer(DIALECT.answers.absorb(response)), {
            "lamina": str(kwargs.get("litellm_call_id"))
        }

    async def async_run_agentic_loop(
        self,
        tools: dict[str, Any],
        model: str,
        *,
        anthropic_messages_optional_request_params: dict[str, Any],
        kwargs: dict[str, Any],
        **_: Any,
    ) -> Any:
        """Send the request again with what was recalled, until the model answers.

        LiteLLM gives the model without its provider. A follow-up has to name both, else LiteLLM may
        choose another.
        """
        pending = self._pending[tools["lamina"]]
        arguments = {**anthropic_messages_optional_request_params, **_read_access(kwargs)}
        provider = kwargs.get("custom_llm_provider")
        if provider and not model.startswith(f"{provider}/"):
            model = f"{provider}/{model}"
        while True:
            response = await litellm.acompletion(
                **{**arguments, **_read_fitted(pending), "model": model, "metadata": {_FOLLOW_UP: True}}
            )
            if not pending.take_answer(DIALECT.answers.absorb(response)):
                return strip_recalls(response, DIALECT, pending.fitted.own_names)

    async def async_post_call_success_deployment_hook(
        self,
        request_data: dict[str, Any],
        response: Any,
        call_type: CallTypes | None,  # noqa: ARG002 - LiteLLM's
    ) -> Any:
        """Remember the call in its conversation, before its caller can make the next one."""
        pending = self._pending.pop(str(request_data.get("litellm_call_id")), None)
        if pending is not None and isinstance(response, litellm.ModelResponse):
            pending.finish(usage=find_usage(response))
            return strip_recalls(response, DIALECT, pending.fitted.own_names)
        return None


def _read_fitted(pending: PendingCall) -> dict[str, Any]:
    """The arguments that fitting may change."""
    return {name: pending.request[name] for name in ("messages", "tools") if name in pending.request}


def _read_access(kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a follow-up needs to reach the same deployment: its address, its key and its limits."""
    names = ("api_key", "api_base", "base_url", "api_version", "timeout", "extra_headers")
    return {name: kwargs[name] for name in names if kwargs.get(name) is not None}


def _is_follow_up(kwargs: dict[str, Any]) -> bool:
    """Whether a call was made by `async_run_agentic_loop` itself."""
    return bool((kwargs.get("metadata") or {}).get(_FOLLOW_UP))
