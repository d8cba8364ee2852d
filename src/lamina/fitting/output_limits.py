"""The limit of output of a request that is cut.

Some clients ask for an answer of 64,000 tokens in a window of 64,000, because they know a larger one. An API
that counts the answer into the window refuses such a request, however short it is. A request that lamina cuts
is sent with a limit that fits beside it. One that lamina does not cut is the client's own affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.core.cut_target import OUTPUT_LIMITS, RESERVE, RESERVED_PART
from lamina.core.envelope import Envelope
from lamina.core.text.characters import lower_ascii
from lamina.dialects.json_values import find_model
from lamina.dialects.port import Dialect

MARGIN = 20
"""One part in so many of a request is left beside it, since its tokens may be an estimate."""

_COUNTING_DIALECTS = ("openai_chat", "openai_responses", "anthropic")
"""APIs that may refuse a request if it and the limit of its answer exceed the window together.

OpenAI's does, and so do vLLM and others that speak it or Anthropic's. Gemini has a limit of its own for
output, and Ollama ends the answer where the window ends.
"""

_COUNTING_CLAUDES = ("claude-3", "claude-sonnet-4-2", "claude-opus-4-2", "claude-opus-4-1", "claude-4")
"""Claude models that are refused so. Since Claude 4.5 the answer ends where the window does, with a stop
reason of its own (`model_context_window_exceeded`)."""


def limit_output(
    request: Mapping[str, Any], envelope: Envelope, dialect: Dialect, *, window: int
) -> Mapping[str, Any]:
    """A request with a limit of output that fits beside it; the same object if its own does.

    The window is that of the budget, even if the model is known with a larger one: many servers have a
    smaller one than the model was made for.
    """
    model = find_model(request)
    if dialect.name not in _COUNTING_DIALECTS or not _counts_output(model):
        return request
    share = min(RESERVE, window // RESERVED_PART)
    tokens = envelope.tokens
    fits = max(window - tokens - tokens // MARGIN, share, _read_thinking_budget(request) + 1)
    limited = request
    for name in OUTPUT_LIMITS:
        limit = request.get(name)
        if not isinstance(limit, int):
            continue
        # The margin is only for a limit that must change: one that fits by count stays the client's.
        if limit > max(fits, window - tokens):
            limited = {**limited, name: fits}
    return limited


def note_lower_limit(envelope: Envelope, window: int) -> Envelope:
    """The envelope with a note that its request has a lower limit of output than the client gave.

    The note has no figure that differs from request to request, so that it is reported once.
    """
    note = f"the limit of output is lowered, so that request and answer fit the window of {window:,} tokens"
    return msgspec.structs.replace(envelope, notes=(*envelope.notes, note))


def _counts_output(model: str) -> bool:
    name = lower_ascii(model.rpartition("/")[2])
    if not name.startswith("claude"):
        return True
    return name.startswith(_COUNTING_CLAUDES)


def _read_thinking_budget(request: Mapping[str, Any]) -> int:
    """The tokens that the model may think. Anthropic's API refuses a limit that is not above them."""
    match request.get("thinking"):
        case {"budget_tokens": int(budget)}:
            return budget
    return 0
