"""Haystack: its compaction hook with a sliding window, with pruned results, and with results put aside.

The hook rewrites the agent's state, so what it did stays. Run by the peer's own interpreter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message


class Sliding:
    outside = False

    def __init__(self, given: Given) -> None:
        self.given = given
        self.library = import_module("haystack.dataclasses")
        self.calls: dict[str, Any] = {}
        hooks = import_module("haystack.hooks.compaction")
        self.hook = hooks.CompactionHook(
            compactor=self.compactor(hooks),
            context_window=given.window,
            token_counter=Counter(self),
            compact_at=given.limit / given.window,
            compact_to=given.goal / given.window,
        )
        self.state = import_module("haystack.components.agents.state").State(schema={}, data={"messages": []})

    def compactor(self, hooks: Any) -> Any:
        return hooks.SlidingWindowCompactor()

    def add(self, messages: list[Message]) -> None:
        self.state.data["messages"] = [*self.state.data["messages"], *map(self._told, messages)]

    def cut(self) -> list[Message]:
        self.hook.run(self.state)
        return [self.back(message) for message in self.state.data["messages"]]

    def back(self, message: Any) -> Message:
        if message.tool_call_result is not None:
            result = message.tool_call_result
            return self.given.back("tool", result.result, [result.origin.id])
        ids = [call.id for call in message.tool_calls]
        return self.given.back(message.role.value, "\n".join(message.texts), ids)

    def _told(self, message: Message) -> Any:
        made, text = self.library.ChatMessage, self.given.words(message)
        if message["role"] == "tool":
            call, name = self.given.answered(message)
            origin = self.calls.get(call) or self.library.ToolCall(tool_name=name, arguments={}, id=call)
            return made.from_tool(text, origin=origin)
        if message["role"] == "assistant":
            return made.from_assistant(text or None, tool_calls=self._calls(message))
        self.given.remember(message)
        return made.from_user(text) if message["role"] == "user" else made.from_system(text)

    def _calls(self, message: Message) -> list[Any]:
        calls = self.given.calls(message)
        found = {c.id: self.library.ToolCall(tool_name=c.name, arguments=c.arguments, id=c.id) for c in calls}
        self.calls.update(found)
        return list(found.values())


class Prune(Sliding):
    def compactor(self, hooks: Any) -> Any:
        return hooks.ToolResultPruningCompactor()


class Offload(Sliding):
    """Puts results aside, for a tool that an agent has to read them."""

    def compactor(self, hooks: Any) -> Any:
        return hooks.ToolResultOffloadCompactor(store=Shelf())


class Shelf:
    """Haystack's port for stores of results, in memory, with names that are the same in every run."""

    supports_binary_content = False

    def __init__(self) -> None:
        self.results: dict[str, str] = {}

    def write(self, *, key: str, content: str) -> str:
        del key  # has a random part
        self.results[f"results/{len(self.results) + 1}.txt"] = content
        return f"results/{len(self.results)}.txt"

    def read(self, reference: str) -> str:
        return self.results[reference]


class Counter:
    """Haystack's port for token counters, filled with the tokenizer that all peers are given."""

    def __init__(self, peer: Sliding) -> None:
        self.peer = peer

    def count(self, messages: list[Any], tools: Any = None) -> int:
        del tools  # the limits are less by these already
        return sum(self.peer.given.tokens(self.peer.back(message)) for message in messages)


PEERS = {"haystack-sliding": Sliding, "haystack-prune": Prune, "haystack-offload": Offload}
