"""Translates everything of a completion request that is not its prompt: to a plain head, and back.

The fields are those of OpenAI's completions, which most servers take. A flat prompt has no tools, no schema
of its answer and no effort: they are named, never written into the prompt.
"""

from __future__ import annotations

from lamina.dialects.head_table import HeadField, HeadTable
from lamina.dialects.json_values import number_or_none, read_texts

HEAD = HeadTable(
    fields=(
        HeadField("model", "model", str),
        HeadField("output", "max_tokens", number_or_none),
        HeadField("temperature", "temperature", number_or_none),
        HeadField("top_p", "top_p", number_or_none),
        HeadField("stop", "stop", read_texts, list),
        HeadField("stream", "stream", bool),
    ),
    silent=frozenset(("user", "n", "best_of", "seed", "stream_options", "logprobs", "echo", "cache_salt")),
)
