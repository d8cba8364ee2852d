"""What a type checker knows of a wrapped client: everything that it knows of the client itself.

Nothing here runs: the type checker of `make check` reads it. A wrong type fails there, and so does an error
that is missing.
"""

from __future__ import annotations

from typing import assert_type

import anthropic.types
from anthropic import Anthropic
from openai import AsyncOpenAI

import lamina
from lamina.fitting import Fitted
from lamina.wrapped import conversation, fitted_of, last_fitted


def keep_types(client: Anthropic, other: AsyncOpenAI) -> None:
    wrapped = lamina.wrap(client, store="chats.db")
    assert_type(wrapped, Anthropic)
    answer = wrapped.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    assert_type(answer, anthropic.types.Message)
    assert_type(conversation(wrapped, "support-42"), Anthropic)
    assert_type(fitted_of(wrapped, answer), Fitted)
    assert_type(last_fitted(wrapped), Fitted | None)
    assert_type(lamina.wrap(other), AsyncOpenAI)
    wrapped.no_such_method()  # type: ignore[attr-defined]
