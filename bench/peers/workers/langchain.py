"""LangChain: trim_messages, ContextEditingMiddleware, and summaries that are given to it.

Trimming and editing see the whole history at each call and keep nothing; summarizing rewrites the agent's
state. deepagents and langmem summarize LangChain's messages in ways of their own. An agent holds the system
text apart from the messages. Run by the peer's own interpreter.
"""

from __future__ import annotations

import tempfile
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message

ROLES = {"human": "user", "ai": "assistant"}
KEEP_RESULTS = 3
"""Results that clearing spares: the library's own default."""

SUMMARY = (
    "The user stated a task and the assistant has been working on it step by step with the tools at hand. "
    "Several files and outputs were looked at, some changes were made, some attempts failed and were "
    "corrected. The work is not finished: what was last under way stands in the messages below. Where a "
    "detail of an earlier step is needed and does not stand there, it has to be looked up again."
)
"""One text for all, with no detail of any conversation: what a summary keeps depends on who writes it."""


class Whole:
    """Messages as LangChain's own, and back."""

    outside = True

    def __init__(self, given: Given) -> None:
        self.given = given
        self.library = import_module("langchain_core.messages")
        self.history: list[Any] = []

    def add(self, messages: list[Message]) -> None:
        self.history += map(self._told, messages)

    def tokens(self, messages: Any) -> int:
        """Count messages as the lab does, with the tokenizer that all peers are given."""
        return sum(self._weight(message) for message in messages)

    def back(self, messages: Any) -> list[Message]:
        return [self._back(message) for message in messages]

    def _told(self, message: Message) -> Any:
        text, role = self.given.words(message), message["role"]
        if role == "assistant":
            calls = [{"id": c.id, "name": c.name, "args": c.arguments} for c in self.given.calls(message)]
            return self.library.AIMessage(text, tool_calls=calls)
        if role == "tool":
            call, name = self.given.answered(message)
            return self.library.ToolMessage(text, tool_call_id=call, name=name)
        self.given.remember(message)
        return self.library.HumanMessage(text) if role == "user" else self.library.SystemMessage(text)

    def _weight(self, message: Any) -> int:
        return self.given.tokens(self._back(message))

    def _back(self, message: Any) -> Message:
        ids = [call["id"] for call in getattr(message, "tool_calls", ())]
        if message.type == "tool":
            ids = [message.tool_call_id]
        return self.given.back(ROLES.get(message.type, message.type), message.text, ids)


class Trim(Whole):
    """As documented for chat: begins with what a user said."""

    start_on: tuple[str, ...] = ("human",)

    def cut(self) -> list[Message]:
        kept = self.library.trim_messages(
            self.history,
            max_tokens=self.given.limit,
            token_counter=self.tokens,
            strategy="last",
            start_on=self.start_on,
            end_on=("human", "tool"),
        )
        return self.back(kept)


class TrimInLoops(Trim):
    """May also begin with an answer, so that something is left where one question takes the whole window."""

    start_on = ("human", "ai")


class Clear(Whole):
    def __init__(self, given: Given) -> None:
        super().__init__(given)
        middleware = import_module("langchain.agents.middleware")
        edit = middleware.ClearToolUsesEdit(trigger=given.limit, keep=KEEP_RESULTS)
        self.editing = middleware.ContextEditingMiddleware(edits=[edit], token_counter=self.tokens)
        self.request = import_module("langchain.agents.middleware.types").ModelRequest

    def cut(self) -> list[Message]:
        sent: list[Any] = []
        self.editing.wrap_model_call(
            self.request(model=None, messages=self.history), lambda request: sent.extend(request.messages)
        )
        return self.back(sent)


class Summarize(Whole):
    package = "langchain.agents.middleware"

    def __init__(self, given: Given, **options: Any) -> None:
        super().__init__(given)
        fake = import_module("langchain_core.language_models.fake_chat_models").FakeListChatModel
        self.model = fake(responses=[SUMMARY])
        self.middleware = import_module(self.package).SummarizationMiddleware(
            model=self.model,
            trigger=("tokens", given.limit),
            keep=("tokens", given.goal),
            token_counter=self.tokens,
            summarizer=lambda _messages: SUMMARY,
            **options,
        )

    def cut(self) -> list[Message]:
        update = self.middleware.before_model({"messages": self.history}, None)
        if update:
            self.history = list(update["messages"][1:])  # the first says that all others are removed
        return self.back(self.history)


class DeepAgents(Summarize):
    """Leaves the agent's messages whole, and remembers in its state which of them the summary replaces."""

    package = "deepagents.middleware.summarization"

    def __init__(self, given: Given) -> None:
        self.folder = tempfile.TemporaryDirectory()  # removed with the peer
        backend = import_module("deepagents.backends.filesystem").FilesystemBackend
        super().__init__(given, backend=backend(root_dir=self.folder.name, virtual_mode=True))
        self.request = import_module("langchain.agents.middleware.types").ModelRequest
        self.state: dict[str, Any] = {}

    def cut(self) -> list[Message]:
        sent: list[Any] = []
        request = self.request(model=self.model, messages=self.history, state=self.state)
        response = self.middleware.wrap_model_call(request, lambda fitted: sent.extend(fitted.messages))
        if response is not None:
            self.state.update(response.command.update)
        return self.back(sent)


class LangMem(Summarize):
    """Summarizes whatever stands before the trigger, and remembers by ids what it has summarized."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self.summarize = import_module("langmem.short_term").summarize_messages
        self.summary: Any = None

    def cut(self) -> list[Message]:
        for place, message in enumerate(self.history):
            message.id = str(place)
        result = self.summarize(
            self.history,
            running_summary=self.summary,
            model=self.model,
            max_tokens=self.given.limit,
            max_summary_tokens=self.given.count(SUMMARY),
            token_counter=self.tokens,
        )
        self.summary = result.running_summary
        return self.back(result.messages)


PEERS = {
    "langchain-trim": Trim,
    "langchain-trim-loops": TrimInLoops,
    "langchain-clear": Clear,
    "langchain-summary": Summarize,
    "deepagents": DeepAgents,
    "langmem": LangMem,
}
