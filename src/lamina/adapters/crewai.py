"""CrewAI: hooks that fit each request of an agent, and a tool that brings back what was left out.

    with LaminaHooks(budget=16_000) as lamina:
        agent = Agent(…, tools=[*tools, lamina.recall_tool])
        result = agent.kickoff([*history, {"role": "user", "content": "…"}])
        history = result.messages[1:]

CrewAI's hooks change the executor's list of messages in place. The first hook fits it before each call of the
model. It remembers the whole history, to which it adds what the executor appends. When the model answers with
text, the second hook brings the whole history back. CrewAI has no state that could hold a ledger. `ledgers`
has one for each conversation, as JSON values for you to keep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Self

import msgspec
from crewai.hooks import (
    LLMCallHookContext,
    register_after_llm_call_hook,
    register_before_llm_call_hook,
    unregister_after_llm_call_hook,
    unregister_before_llm_call_hook,
)
from crewai.llms.base_llm import BaseLLM
from crewai.tools import BaseTool
from crewai.types.usage_metrics import UsageMetrics
from crewai.utilities.agent_utils import convert_tools_to_openai_schema
from crewai.utilities.pydantic_schema_utils import generate_model_description
from pydantic import BaseModel, Field, PrivateAttr

from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, RecentValues, Turn, add_report
from lamina.adapters.chat_turns import write_output_format
from lamina.core.values import Budget
from lamina.fitting.policy import Policy

__all__ = ["LaminaHooks"]

_CONVERSATIONS = 256
"""How many conversations are remembered: their histories for `recall`, and their ledgers."""

_OWN_FIELDS = frozenset(("cache_breakpoint", "files", "raw_tool_call_parts"))
"""Fields of a message that are CrewAI's own: providers get them in another form, or not at all."""


class _Conversation(msgspec.Struct, kw_only=True):
    """A list of messages that was fitted: all of them, and those that stand in the executor's list.

    `usage` is what the model had counted for all of its calls before this one.
    """

    name: str
    history: list[Any]
    sent: list[Any]
    usage: UsageMetrics

    def add_appended(self, messages: Sequence[Any]) -> list[Any] | None:
        """The history with what was appended. None if the list is another conversation now."""
        unchanged = messages[: len(self.sent)]
        if list(map(id, unchanged)) != list(map(id, self.sent)):
            return None
        return [*self.history, *messages[len(self.sent) :]]


class LaminaHooks:
    """Fits the requests of all agents while it is open. `policy` says how.

    `budget` replaces that of the policy. Without either the window of the model counts. `recall_tool` belongs
    to the agents' tools. If the policy turns recall off, no handles are shown, and they need no tool.
    `ledgers` are those of an earlier process.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        ledgers: Mapping[str, Any] | None = None,
    ) -> None:
        self.fitter = ContextFitter(CODEC, policy=policy, budget=budget)
        self.ledgers: RecentValues[str, Any] = RecentValues(_CONVERSATIONS)
        self.ledgers.update(ledgers or {})
        self._conversations: RecentValues[int, _Conversation] = RecentValues(_CONVERSATIONS)
        self.recall_tool = CrewRecallTool(self)

    def __enter__(self) -> Self:
        register_before_llm_call_hook(self._fit)
        register_after_llm_call_hook(self._bring_back)
        return self

    def __exit__(self, *_: object) -> None:
        unregister_before_llm_call_hook(self._fit)
        unregister_after_llm_call_hook(self._bring_back)

    def answer(self, arguments: Mapping[str, Any]) -> str:
        """Answer a call of the recall tool, from the conversation that shows its key."""
        for conversation in reversed(self._conversations.values()):
            if str(arguments["key"]) in json.dumps(conversation.sent, default=str):
                ledger = self.ledgers.get(conversation.name)
                return self.fitter.answer(conversation.history, arguments, ledger=ledger)
        return self.fitter.answer((), arguments)

    def _fit(self, context: LLMCallHookContext) -> None:
        if context.executor is None:
            return  # a call without an agent
        messages = context.messages
        history = self._read_history(context)
        name = _name_conversation(history)
        fitted = self.fitter.fit(
            history,
            tools=convert_tools_to_openai_schema(context.executor.original_tools)[0],
            head={"model": str(getattr(context.llm, "model", "")), **_write_output_format(context)},
            ledger=self.ledgers.pop(name, None),
            conversation=name,
        )
        messages[:] = fitted.messages
        self.ledgers[name] = msgspec.to_builtins(fitted.ledger)
        self._conversations[id(messages)] = _Conversation(
            name=name, history=history, sent=list(messages), usage=_read_usage(context.llm)
        )

    def _bring_back(self, context: LLMCallHookContext) -> None:
        if context.executor is not None:
            context.messages[:] = self._read_history(context)

    def _read_history(self, context: LLMCallHookContext) -> list[Any]:
        """All messages of the conversation that is in the executor's list. Its call was answered."""
        messages = context.messages
        conversation = self._conversations.pop(id(messages), None)
        if conversation is not None:
            history = conversation.add_appended(messages)
            if history is not None:
                self._take_report(conversation, _read_usage(context.llm))
                return history
        return list(messages)

    def _take_report(self, conversation: _Conversation, usage: UsageMetrics) -> None:
        """Add what the model's API reported for the last call to the ledger of its conversation.

        A model counts the calls of all its agents. If it made others meanwhile, nobody knows which took what.
        """
        last_call = usage.delta_since(conversation.usage)
        ledger = self.ledgers.get(conversation.name)
        if last_call.successful_requests == 1 and ledger is not None:
            self.ledgers[conversation.name] = add_report(ledger, last_call)


def _read_usage(llm: Any) -> UsageMetrics:
    """What a model has counted so far. Agents may have a model of the application, which counts nothing."""
    if isinstance(llm, BaseLLM):
        return llm.get_token_usage_summary()
    return UsageMetrics()


def _write_output_format(context: LLMCallHookContext) -> dict[str, Any]:
    """What CrewAI adds for a structured answer: that of the task, else that of the model.

    To an agent with tools it sends the schema in the last request only. It counts in all of them.
    """
    output = getattr(context.executor, "response_model", None)
    if output is None:
        output = getattr(context.llm, "response_format", None)
    if isinstance(output, type) and issubclass(output, BaseModel):
        output = generate_model_description(output)
    return write_output_format(output)


def _name_conversation(history: Sequence[Mapping[str, Any]]) -> str:
    """Name a conversation after its beginning, up to the first question, which stays as it is."""
    beginning: list[Any] = []
    for message in history:
        beginning.append([message["role"], message.get("content")])
        if message["role"] == "user":
            break
    return sha256(json.dumps(beginning, default=str).encode()).hexdigest()[:16]


class CrewRecallArguments(BaseModel):
    """The arguments of the tool, in the words of `RECALL`."""

    key: str = Field(description=RECALL.schema["properties"]["key"]["description"])
    start: int = Field(default=0, description=RECALL.schema["properties"]["start"]["description"])
    find: str = Field(default="", description=RECALL.schema["properties"]["find"]["description"])


class CrewRecallTool(BaseTool):
    """Answers from the whole history of its conversation."""

    name: str = RECALL.name
    description: str = RECALL.description
    args_schema: type[BaseModel] = CrewRecallArguments
    _hooks: Any = PrivateAttr()

    def __init__(self, hooks: LaminaHooks) -> None:
        super().__init__()
        self._hooks = hooks

    def _run(self, key: str, start: int = 0, find: str = "") -> str:
        answer: str = self._hooks.answer({"key": key, "start": start, "find": find})
        return answer


def _write_message(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Write a message as a turn: without the fields that only CrewAI reads."""
    turn = dict(message)
    for name in _OWN_FIELDS:
        turn.pop(name, None)
    return [turn]


def _read_message(turns: Sequence[Turn], source: Mapping[str, Any] | None) -> dict[str, Any]:
    """The turn as a message, with CrewAI's own fields of the message that it came from."""
    own_fields = {name: value for name, value in (source or {}).items() if name in _OWN_FIELDS}
    return {**turns[0].wire, **own_fields}


CODEC = MessageCodec(write=_write_message, read=_read_message)
