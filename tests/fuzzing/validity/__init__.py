"""What the four APIs refuse, written from their documents and errors and not from lamina's own `check`.

Each rule has the number under which it is known: A1 to A17 for Anthropic's Messages, C1 to C6 for Chat
Completions, R1 to R9 for Responses, G1 to G8 for Gemini. Where the documents leave a question open, the
looser reading is taken for what only passes through, and the docstring of the rule says so. Nothing here
imports a dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tests.fuzzing.validity import anthropic, gemini, openai_chat, openai_responses
from tests.fuzzing.validity.breach import Breach, Json

Rules = Callable[[Json, Json], Iterator[Breach]]

RULES: Mapping[str, Rules] = {
    "anthropic": anthropic.breaches,
    "openai_chat": openai_chat.breaches,
    "openai_responses": openai_responses.breaches,
    "gemini": gemini.breaches,
}


def breaches(request: Json, dialect: str, came: Json) -> list[Breach]:
    """What the API would refuse. `came` is the client's own request: some things must go back whole."""
    return list(RULES[dialect](request, came))
