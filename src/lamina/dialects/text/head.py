"""Everything of a completion request that is not its prompt, in plain words and back.

The words are those of OpenAI's completions, which most servers take. A flat prompt has no tools, no schema
of its answer and no effort: they are named, never written into the prompt.
"""

from __future__ import annotations

from typing import Any

from lamina.core.values import Head
from lamina.dialects.port import OwnHead, PlainHead, number, texts

_READ = frozenset(("model", "max_tokens", "temperature", "top_p", "stop", "stream"))
_SILENT = frozenset(("user", "n", "best_of", "seed", "stream_options", "logprobs", "echo", "cache_salt"))
"""What says how a request is run or paid for, and nothing to the model: not missed elsewhere."""


def plain_head(head: Head) -> PlainHead:
    """What the parameters mean; `left` names those that only completions have."""
    given = {name: value for name, value in head.parameters.items() if value is not None}
    return PlainHead(
        model=str(given.get("model", "")),
        output=number(given.get("max_tokens")),
        temperature=number(given.get("temperature")),
        top_p=number(given.get("top_p")),
        stop=texts(given.get("stop")),
        stream=bool(given["stream"]) if "stream" in given else None,
        left=tuple(name for name in given if name not in _READ and name not in _SILENT),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the words of completions."""
    said: dict[str, Any] = {
        "model": plain.model or None,
        "max_tokens": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "stop": list(plain.stop) or None,
        "stream": plain.stream,
    }
    forced = plain.choice if plain.tools else ""
    unsaid = {"tools": plain.tools, "choice": forced, "answer": plain.answer, "effort": plain.effort}
    parameters = {name: value for name, value in said.items() if value is not None}
    return OwnHead(
        head=Head(parameters=parameters), left=tuple(name for name, value in unsaid.items() if value)
    )
