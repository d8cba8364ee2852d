"""Counts exactly for OpenAI's models, offline: o200k and cl100k, with the vocabularies that splintr carries.

What providers put around the text (`framing`) is measured, not exact. A vocabulary is loaded once per
process, when its counter is first needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import msgspec

from lamina.core.tokens import Counter
from lamina.errors import BadInput
from lamina.models.counters import vocabularies
from lamina.models.framing import framing_for, longest_prefix
from lamina.models.names import own_name


@cache
def o200k() -> Counter:
    """GPT-4o and later, the o-series, gpt-oss: its o200k_harmony differs in special tokens only."""
    counter = vocabularies.vocabulary("o200k_base")
    return msgspec.structs.replace(counter, name="o200k", framing=framing_for("gpt-5"))


@cache
def cl100k() -> Counter:
    """GPT-4, GPT-3.5 and the text-embedding models."""
    counter = vocabularies.vocabulary("cl100k_base")
    return msgspec.structs.replace(counter, name="cl100k", framing=framing_for("gpt-4"))


def for_model(model: str) -> Counter:
    """The counter of a model by its name; one instance per encoding.

    A model newer than the newest whose encoding OpenAI has published counts as o200k, without the
    claim to be exact.
    """
    name = own_name(model)
    prefix = longest_prefix(name, _ENCODINGS)
    if not prefix or _WORD_GOES_ON.match(name, len(prefix)):
        raise BadInput(
            f"no OpenAI encoding is known for model {model!r}",
            place="for_model",
            hint="use o200k() or cl100k() if you know which it has, else counter_for(model) for an estimate",
        )
    return _ENCODINGS[prefix]()


@cache
def _unpublished() -> Counter:
    return msgspec.structs.replace(o200k(), exact=False)


_WORD_GOES_ON = re.compile(r"[a-z0-9]")  # `o10` is another model than `o1`

_ENCODINGS: dict[str, Callable[[], Counter]] = {
    **dict.fromkeys(
        ("gpt-4o", "chatgpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-oss", "o1", "o3", "o4"), o200k
    ),
    **dict.fromkeys(("gpt-4", "gpt-3.5", "gpt-35", "text-embedding"), cl100k),
    "gpt-6": _unpublished,
}
