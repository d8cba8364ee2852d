"""Made-up conversations of every API that has messages."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tests.dialects import anthropic_requests as anthropic
from tests.dialects import bedrock_requests as bedrock
from tests.dialects import gemini_requests as gemini
from tests.dialects import ollama_requests as ollama
from tests.dialects import openai_chat_requests as chat
from tests.dialects import openai_responses_requests as responses

Json = dict[str, Any]


class Talk(NamedTuple):
    """How conversations of an API are made from a number, and the field that holds their turns.

    `question` is added to those that may end with an answer.
    """

    field: str
    make: Callable[[int], Json]
    question: Json | None = None

    def ask(self, seed: int) -> Json:
        """A conversation that ends with a question."""
        request = self.make(seed)
        if self.question is None:
            return request
        return request | {self.field: [*request[self.field], self.question]}


def _make_messages(seed: int) -> Json:
    dice = Random(seed)  # noqa: S311 - a seeded generator is the point
    request = anthropic.unique(anthropic.make_request([dice.randrange(4_000) for _ in range(8)]))
    messages = [*request["messages"], chat.user("And now?")]
    return request | {"messages": messages, "model": dice.choice(("claude-sonnet-4-5", "claude-opus-5-5"))}


TALKS: dict[str, Talk] = {
    "anthropic": Talk("messages", _make_messages),
    "openai_chat": Talk("messages", chat.conversation, chat.user("And now?")),
    "openai_responses": Talk("input", responses.conversation, responses.user("And now?")),
    "gemini": Talk("contents", gemini.conversation),
    "ollama": Talk("messages", ollama.conversation, ollama.user("And now?")),
    "bedrock_converse": Talk("messages", bedrock.conversation),
}
