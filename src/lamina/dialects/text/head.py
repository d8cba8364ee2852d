"""Everything of a completion request that is not its prompt, in plain words and back.

The fields are those of OpenAI's completions, which most servers take. A flat prompt has no tools, no schema
of its answer and no effort: they are named, never written into the prompt.
"""

from __future__ import annotations

from typing import Any

from lamina.core.values import Head
from lamina.dialects.heads import list_untranslated, read_stream_switch
from lamina.dialects.json_values import drop_nulls, number_or_none, read_texts
from lamina.dialects.port import OwnHead, PlainHead

_READ_FIELDS = frozenset(("model", "max_tokens", "temperature", "top_p", "stop", "stream"))
"""Fields that `plain_head` reads."""

_SILENT_FIELDS = frozenset(
    ("user", "n", "best_of", "seed", "stream_options", "logprobs", "echo", "cache_salt")
)
"""Fields that say how a request is run or paid for, and nothing to the model: no loss elsewhere."""


def plain_head(head: Head) -> PlainHead:
    """What the parameters mean; `left` names those that only completions have."""
    parameters = drop_nulls(head.parameters)
    return PlainHead(
        model=str(parameters.get("model", "")),
        output=number_or_none(parameters.get("max_tokens")),
        temperature=number_or_none(parameters.get("temperature")),
        top_p=number_or_none(parameters.get("top_p")),
        stop=read_texts(parameters.get("stop")),
        stream=read_stream_switch(parameters),
        left=tuple(list_untranslated(parameters, _READ_FIELDS, _SILENT_FIELDS)),
    )


def own_head(plain: PlainHead) -> OwnHead:
    """The same in the fields of completions. `left` names what they cannot say.

    Tools cannot be said in a flat prompt, so `left` names them.
    """
    fields: dict[str, Any] = {
        "model": plain.model or None,
        "max_tokens": plain.output,
        "temperature": plain.temperature,
        "top_p": plain.top_p,
        "stop": list(plain.stop) or None,
        "stream": plain.stream,
    }
    unsaid = {
        "tools": plain.tools,
        "choice": plain.tools and plain.choice,
        "answer": plain.answer,
        "effort": plain.effort,
    }
    left = tuple(name for name, value in unsaid.items() if value)
    return OwnHead(head=Head(parameters=drop_nulls(fields)), left=left)
