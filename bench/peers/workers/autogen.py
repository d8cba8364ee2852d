"""AutoGen: TokenLimitedChatCompletionContext, which takes messages out of the middle until the rest fits.

It keeps the whole history and cuts a view of it at each call. Results of one step are one message. Run by the
peer's own interpreter.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message


class TokenLimited:
    outside = False

    def __init__(self, given: Given) -> None:
        self.given = given
        self.library = import_module("autogen_core.models")
        self.call = import_module("autogen_core").FunctionCall
        self.loop = asyncio.new_event_loop()
        self.weights: dict[int, int] = {}
        self.context = import_module("autogen_core.model_context").TokenLimitedChatCompletionContext(
            self, token_limit=given.limit
        )

    def count_tokens(self, messages: Any, *, tools: Any = ()) -> int:
        """Count as the lab does. The context asks its model client for this, and for nothing else."""
        del tools  # they are counted beforehand
        return sum(self._weight(message) for message in messages)

    def add(self, messages: list[Message]) -> None:
        results: list[Any] = []
        for message in messages:
            if message["role"] == "tool":
                results.append(self._result(message))
                continue
            self._add_results(results)
            results = []
            self._add(self._told(message))
        self._add_results(results)

    def cut(self) -> list[Message]:
        sent = self.loop.run_until_complete(self.context.get_messages())
        return [message for each in sent for message in self._back(each)]

    def _add(self, message: Any) -> None:
        self.loop.run_until_complete(self.context.add_message(message))

    def _add_results(self, results: list[Any]) -> None:
        if results:
            self._add(self.library.FunctionExecutionResultMessage(content=results))

    def _result(self, message: Message) -> Any:
        call, name = self.given.answered(message)
        text = self.given.words(message)
        return self.library.FunctionExecutionResult(content=text, name=name, call_id=call, is_error=False)

    def _told(self, message: Message) -> Any:
        library, text = self.library, self.given.words(message)
        if message["role"] == "assistant":
            calls = [
                self.call(id=call.id, name=call.name, arguments=call.raw)
                for call in self.given.calls(message)
            ]
            if calls:
                return library.AssistantMessage(content=calls, thought=text, source="assistant")
            return library.AssistantMessage(content=text, source="assistant")
        self.given.remember(message)
        if message["role"] == "user":
            return library.UserMessage(content=text, source="user")
        return library.SystemMessage(content=text)

    def _weight(self, message: Any) -> int:
        if id(message) not in self.weights:
            self.weights[id(message)] = sum(self.given.tokens(each) for each in self._back(message))
        return self.weights[id(message)]

    def _back(self, message: Any) -> list[Message]:
        if message.type == "FunctionExecutionResultMessage":
            return [self.given.back("tool", each.content, [each.call_id]) for each in message.content]
        if message.type == "AssistantMessage" and not isinstance(message.content, str):
            ids = [call.id for call in message.content]
            return [self.given.back("assistant", message.thought or "", ids)]
        roles = {"AssistantMessage": "assistant", "UserMessage": "user", "SystemMessage": "system"}
        return [self.given.back(roles[message.type], message.content, [])]


PEERS = {"autogen": TokenLimited}
