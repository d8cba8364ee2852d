"""pydantic-ai-harness: sliding and tiered compaction, by the hook that an agent calls before each request.

Both rewrite the agent's history, so what they did to it stays. The tools are not counted by them; the limits
are less by that much. Run by the peer's own interpreter.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message

KEEP_PAIRS = 3
"""Results that clearing spares: the library's own default."""


class Sliding:
    outside = False

    def __init__(self, given: Given) -> None:
        self.given = given
        self.made = import_module("pydantic_ai.messages")
        self.models = import_module("pydantic_ai.models")
        self.model = import_module("pydantic_ai.models.test").TestModel()
        self.run = import_module("pydantic_ai.tools").RunContext(
            deps=None, model=self.model, usage=import_module("pydantic_ai.usage").RunUsage(), messages=[]
        )
        self.strategy = self.compaction(import_module("pydantic_ai_harness.compaction"))
        self.loop = asyncio.new_event_loop()

    def compaction(self, library: Any) -> Any:
        return library.SlidingWindowCompaction(
            max_tokens=self.given.limit, keep_tokens=self.given.goal, tokenizer=self.given.count
        )

    def add(self, messages: list[Message]) -> None:
        for message in messages:
            if message["role"] == "assistant":
                self.run.messages.append(self._response(message))
            else:
                self._request(self._part(message))

    def cut(self) -> list[Message]:
        context = self.models.ModelRequestContext(
            model=self.model,
            messages=list(self.run.messages),
            model_settings=None,
            model_request_parameters=self.models.ModelRequestParameters(),
        )
        sent = self.loop.run_until_complete(self.strategy.before_model_request(self.run, context)).messages
        return [message for each in sent for message in self._back(each)]

    def _response(self, message: Message) -> Any:
        made, text = self.made, self.given.words(message)
        parts = [made.TextPart(text)] if text else []
        calls = self.given.calls(message)
        return made.ModelResponse(
            parts=[*parts, *(made.ToolCallPart(call.name, call.raw, call.id) for call in calls)]
        )

    def _part(self, message: Message) -> Any:
        text = self.given.words(message)
        if message["role"] == "tool":
            call, name = self.given.answered(message)
            return self.made.ToolReturnPart(name, text, call)
        self.given.remember(message)
        made = self.made.UserPromptPart if message["role"] == "user" else self.made.SystemPromptPart
        return made(text)

    def _request(self, part: Any) -> None:
        """Add to the request that stands last, as an agent sends the results of one step together."""
        history = self.run.messages
        if history and history[-1].kind == "request":
            history[-1] = self.made.ModelRequest(parts=[*history[-1].parts, part])
        else:
            history.append(self.made.ModelRequest(parts=[part]))

    def _back(self, message: Any) -> list[Message]:
        if message.kind == "request":
            return [self._from_part(part) for part in message.parts]
        text = "".join(part.content for part in message.parts if part.part_kind == "text")
        ids = [part.tool_call_id for part in message.parts if part.part_kind == "tool-call"]
        return [self.given.back("assistant", text, ids)]

    def _from_part(self, part: Any) -> Message:
        if part.part_kind == "tool-return":
            return self.given.back("tool", part.model_response_str(), [part.tool_call_id])
        role = "system" if part.part_kind == "system-prompt" else "user"
        return self.given.back(role, part.content if isinstance(part.content, str) else _joined(part.content))


class Tiered(Sliding):
    """Clears old results where that frees enough to pay, and drops the oldest where it does not suffice."""

    def compaction(self, library: Any) -> Any:
        given = self.given
        clear = library.ClearToolResults(
            max_tokens=1,
            keep_pairs=KEEP_PAIRS,
            min_clear_tokens=given.limit - given.goal,
            tokenizer=given.count,
        )
        slide = library.SlidingWindowCompaction(max_tokens=1, keep_tokens=given.goal, tokenizer=given.count)
        return library.TieredCompaction(
            tiers=[clear, slide], target_tokens=given.limit, tokenizer=given.count
        )


def _joined(content: Any) -> str:
    return "".join(part if isinstance(part, str) else str(getattr(part, "content", "")) for part in content)


PEERS = {"pydantic-ai-sliding": Sliding, "pydantic-ai-tiered": Tiered}
