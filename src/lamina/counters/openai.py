"""Exact counts for OpenAI's models, offline: o200k and cl100k, with the vocabularies that splintr carries.

Text is only ever text here: `<|endoftext|>` in a file is seven or so ordinary tokens, not one special
one. What stands around the text (`framing`) is measured, not exact. Loading a vocabulary happens once
per process, when its counter is first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial

import msgspec

from lamina.core.tokens import Counter
from lamina.counters.framing import framing_for, longest_prefix
from lamina.errors import BadInput
from lamina.models import own_name


@cache
def o200k() -> Counter:
    """GPT-4o and later, the o-series, gpt-oss."""
    return Counter(name="o200k", count=_counting("o200k_base"), exact=True, framing=framing_for("gpt-5"))


@cache
def cl100k() -> Counter:
    """GPT-4, GPT-3.5 and the text-embedding models."""
    return Counter(name="cl100k", count=_counting("cl100k_base"), exact=True, framing=framing_for("gpt-4"))


def for_model(model: str) -> Counter:
    """The counter of a model by its name; one instance per encoding.

    A model newer than the newest whose encoding OpenAI has published counts as o200k, without the
    claim to be exact.
    """
    name = own_name(model)
    prefix = longest_prefix(name, _ENCODINGS)
    if prefix is None or _WORD_GOES_ON.match(name, len(prefix)):
        raise BadInput(
            f"no OpenAI encoding is known for model {model!r}",
            place="for_model",
            hint="use o200k() or cl100k() if you know which it has, else counter_for(model) for an estimate",
        )
    return _ENCODINGS[prefix]()


def encode(text: str, *, encoding: str = "o200k_base") -> list[int]:
    """Token ids, with special tokens read as plain text and lone surrogates as U+FFFD."""
    encode_ordinary = _encoder(encoding)
    try:
        return encode_ordinary(text)
    except UnicodeEncodeError:
        return encode_ordinary(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _counting(encoding: str) -> Callable[[str], int]:
    _encoder(encoding)  # so that what is missing is missed here, and not when counting
    return partial(_count, encoding)


def _count(encoding: str, text: str) -> int:
    return len(encode(text, encoding=encoding))


@cache
def _encoder(encoding: str) -> Callable[[str], list[int]]:
    from splintr import Tokenizer  # noqa: PLC0415 - who counts otherwise does not pay for it

    # Every other method of splintr matches special tokens in the text, some of them invented.
    encode_ordinary: Callable[[str], list[int]] = Tokenizer.from_pretrained(encoding).encode_ordinary
    return encode_ordinary


@cache
def _unpublished() -> Counter:
    return msgspec.structs.replace(o200k(), exact=False)


_WORD_GOES_ON = re.compile(r"[a-z0-9]")

_ENCODINGS: dict[str, Callable[[], Counter]] = {
    **dict.fromkeys(
        ("gpt-4o", "chatgpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-oss", "o1", "o3", "o4"), o200k
    ),
    **dict.fromkeys(("gpt-4", "gpt-3.5", "gpt-35", "text-embedding"), cl100k),
    "gpt-6": _unpublished,
}
