"""LiteLLM, as a library and as a proxy: a callback that fits each call of a model.

    litellm.callbacks = [LaminaLogger(budget=16_000)]
    answer = await litellm.acompletion(model="…", messages=history, tools=tools)

It fits what callers send in the words of three APIs: `acompletion` (Chat Completions), `aresponses`
(Responses) and `anthropic.messages.acreate` (Messages). A caller sends its whole history each time, so
conversations are recognised by their content, as a wrapped client does. What was left out can be recalled:
the model's calls of `recall` are answered inside the call (LiteLLM's agentic loop), and the caller never sees
them. A stream is fitted without handles, since nothing could answer a recall in the middle of it.
Calls without `await` are not fitted: use `lamina.fit_request` there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NamedTuple
from uuid import uuid4

import litellm
import msgspec
from litellm.anthropic_interface import messages as anthropic_messages
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.utils import CallTypes

from lamina.adapters.bridge import RecentValues
from lamina.adapters.chat_turns import write_output_format
from lamina.conversations.conversations import Conversations
from lamina.conversations.pending_call import PendingCall
from lamina.conversations.recall_filter import RecallFilter
from lamina.core.values import Budget
from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.openai_chat import DIALECT as OPENAI_CHAT
from lamina.dialects.openai_responses import DIALECT as OPENAI_RESPONSES
from lamina.dialects.port import Dialect
from lamina.dialects.usage import find_usage
from lamina.fitting.policy import Policy, choose_policy
from lamina.fitting.server_reports import with_headers

__all__ = ["LaminaLogger"]

_PENDING = 1_024
"""How many calls may be under way at once. Of calls that never end the oldest are forgotten."""

_is_follow_up: ContextVar[bool] = ContextVar("lamina_follow_up", default=False)
"""Whether the call that is made here answers a recall: it is fitted already."""


class _Api(NamedTuple):
    """An API whose words callers of LiteLLM use. `turns` is the argument that holds the conversation.

    `head` are arguments that matter for the size of a request. A class may be given as `response_format`, so
    that one is read apart. `send` makes a call.
    """

    dialect: Dialect
    turns: str
    head: tuple[str, ...]
    send: Callable[..., Awaitable[Any]]


_CHAT = _Api(
    OPENAI_CHAT,
    "messages",
    ("model", "tools", "functions", "tool_choice", "max_tokens", "max_completion_tokens"),
    litellm.acompletion,
)
_RESPONSES = _Api(
    OPENAI_RESPONSES,
    "input",
    ("model", "instructions", "tools", "tool_choice", "text", "max_output_tokens", "previous_response_id"),
    litellm.aresponses,
)
_MESSAGES = _Api(
    ANTHROPIC,
    "messages",
    ("model", "system", "tools", "tool_choice", "thinking", "max_tokens", "extra_headers"),
    anthropic_messages.acreate,
)
_APIS = {
    CallTypes.acompletion: _CHAT,
    CallTypes.completion: _CHAT,
    CallTypes.aresponses: _RESPONSES,
    CallTypes.anthropic_messages: _MESSAGES,
}
"""The API of each kind of call. Others, such as embeddings, are not fitted."""


class _LiteCall(NamedTuple):
    """A call that was fitted, and has no answer yet."""

    api: _Api
    pending: PendingCall

    def read_fitted(self) -> dict[str, Any]:
        """The arguments of the call, as they were fitted. The format of its answer stays the caller's."""
        request = with_headers(self.pending.request, self.pending.headers, beta=False)
        names = (*self.api.head, self.api.turns, "extra_headers")
        return {name: request[name] for name in names if name in request}

    def is_recall(self, response: Any) -> bool:
        """Whether an answer only wants to recall something. What it asks for is then in the request."""
        recall_filter = self._filter(response)
        return self.pending.take_answer(recall_filter.absorb(), shows_call=recall_filter.shows_call)

    def hide_recalls(self, response: Any) -> Any:
        return self._filter(response).show_whole(shows_nothing=self.pending.shows_nothing)

    def _filter(self, response: Any) -> RecallFilter:
        recall_filter = RecallFilter(self.api.dialect, self.pending.own_names)
        recall_filter.take_whole(response)
        return recall_filter


class LaminaLogger(CustomLogger):
    """Fits each call of a model into the window. `policy` says how; `budget` replaces that of the policy.

    Without a budget the window of the model counts. If the policy turns recall off, no handles are shown.
    """

    def __init__(self, *, policy: Policy | None = None, budget: Budget | int | None = None) -> None:
        super().__init__()
        policy = choose_policy(policy, budget=budget, place="LaminaLogger")
        self._streamed = Conversations(msgspec.structs.replace(policy, recall="off"))
        self._answered = self._streamed
        if policy.recall != "off":
            self._answered = Conversations(policy)
        self._calls: RecentValues[str, _LiteCall] = RecentValues(_PENDING)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: CallTypes | None
    ) -> dict[str, Any] | None:
        """Fit the conversation just before it is sent.

        Calls of other kinds pass, and so does a follow-up that answers a recall: it is fitted already. A
        stream belongs to conversations without handles, since nothing could answer a recall in it.
        """
        api = _APIS.get(call_type) if call_type else None
        if api is None or not kwargs.get(api.turns) or _is_follow_up.get():
            return None
        streams = bool(kwargs.get("stream"))
        conversations = self._answered
        if streams:
            conversations = self._streamed
        names = (*api.head, api.turns)
        request = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        request |= write_output_format(kwargs.get("response_format"))
        call = _LiteCall(api, PendingCall(conversations, api.dialect, request, streams=streams))
        if streams:
            call.pending.finish()  # LiteLLM says when a stream ends only after the next call may have begun
        else:
            self._calls[str(kwargs.setdefault("litellm_call_id", str(uuid4())))] = call
        return {**kwargs, **call.read_fitted()}

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
        call_id = str(kwargs.get("litellm_call_id"))
        call = self._calls.get(call_id)
        if call is None or _is_follow_up.get():
            return False, {}
        return call.is_recall(response), {"lamina": call_id}

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
        call = self._calls[tools["lamina"]]
        arguments = {**anthropic_messages_optional_request_params, **_read_access(kwargs)}
        provider = kwargs.get("custom_llm_provider")
        if provider and not model.startswith(f"{provider}/"):
            model = f"{provider}/{model}"
        token = _is_follow_up.set(True)
        try:
            while True:
                response = await call.api.send(**{**arguments, **call.read_fitted(), "model": model})
                if not call.is_recall(response):
                    return call.hide_recalls(response)
        finally:
            _is_follow_up.reset(token)

    async def async_post_call_success_deployment_hook(
        self,
        request_data: dict[str, Any],
        response: Any,
        call_type: CallTypes | None,  # noqa: ARG002 - LiteLLM's
    ) -> Any:
        """Remember the call in its conversation, before its caller can make the next one."""
        if _is_follow_up.get():
            return None
        call = self._calls.pop(str(request_data.get("litellm_call_id")), None)
        if call is None:
            return None
        call.pending.finish(usage=find_usage(response))
        return call.hide_recalls(response)


def _read_access(kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a follow-up needs to reach the same deployment: its address, its key and its limits."""
    names = ("api_key", "api_base", "base_url", "api_version", "timeout", "extra_headers")
    return {name: kwargs[name] for name in names if kwargs.get(name) is not None}
