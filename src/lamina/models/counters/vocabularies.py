"""Vocabularies that splintr carries: text to tokens as the model's own tokenizer does it, offline.

Text is only ever text here: `<|endoftext|>` in a file is seven or so ordinary tokens, not one special
one. Each vocabulary is checked when it is loaded, by the ids of one known text: one that is missing, cut
short or replaced by bytes raises `BadInput`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from typing import Protocol
from unicodedata import ucd_3_2_0

from lamina.core.tokens import Counter
from lamina.errors import BadInput
from lamina.models.counters.count_guard import (
    WHOLE,
    TextCount,
    between_long_runs,
    guard_count,
    split_long_text,
    without_surrogates,
)

PROBE = "Zählt: 世界 🌍 f(x)=x**2  # don't\n<|endoftext|>"
"""Words, scripts, signs and the spelling of a special token: what a wrong vocabulary gets wrong."""


class Tokenizer(Protocol):
    """What is used of a tokenizer of splintr.

    Only `encode_ordinary` reads special tokens, some of which splintr invented, as plain text. The ids of
    `encode_flat` are four bytes each, which saves the objects of a list.
    """

    def encode_ordinary(self, text: str, /) -> list[int]: ...

    def encode_flat(self, text: str, /) -> bytes: ...


def names() -> tuple[str, ...]:
    """The names of all vocabularies."""
    return tuple(_VOCABULARIES)


@cache
def vocabulary(name: str) -> Counter:
    """A counter that is exact for every model with this vocabulary. Its framing is the plain one."""
    tokenizer(name)  # raises here if the vocabulary is missing, and not when counting
    family, _ = _VOCABULARIES[name]
    return Counter(name=name.removesuffix("_base"), count=guard_count(_count_with(name), family), exact=True)


def encode(text: str, *, vocabulary: str) -> list[int]:
    """Token ids, with special tokens read as plain text and lone surrogates as U+FFFD."""
    encode_ordinary = tokenizer(vocabulary).encode_ordinary
    try:
        return encode_ordinary(text)
    except UnicodeEncodeError:
        return encode_ordinary(without_surrogates(text))


@cache
def tokenizer(name: str) -> Tokenizer:
    """The proven tokenizer of a vocabulary, for text without surrogates."""
    if name not in _VOCABULARIES:
        raise BadInput(f"unknown vocabulary {name!r}", place="vocabulary", hint=f"use one of {names()}")
    loaded = _load_tokenizer(name)
    proof = sha256(str(loaded.encode_ordinary(PROBE)).encode()).hexdigest()[:16]
    if proof != _VOCABULARIES[name][1]:
        raise BadInput(
            f"splintr's vocabulary {name!r} does not encode a known text as it should",
            place="vocabulary",
            hint="install the release of splintr-rs that lamina names, or count with estimate_for(...)",
        )
    return loaded


def _load_tokenizer(name: str) -> Tokenizer:
    import splintr  # noqa: PLC0415 - loaded only when it is needed

    loaded: Tokenizer = splintr.Tokenizer.from_pretrained(name)
    return loaded


def _count_with(name: str) -> TextCount:
    if name.startswith("gemma"):
        return partial(_count_with_tags, name)
    if name == "qwen3":
        return partial(_count_composed, name)
    if name in _ALL_SPECIAL_ALIKE:
        return partial(_count_flat, name, tokenizer(name).encode_flat)
    return partial(_count_plain, name)


_SPECIAL_BEGINS = "<|"
_ALL_SPECIAL_ALIKE = ("o200k_base", "cl100k_base", "llama3")
"""Vocabularies whose special tokens all begin so, those that splintr invents too."""


def _count_flat(name: str, encode_flat: Callable[[str], bytes], text: str) -> int:
    """As `_count_plain`, in three quarters of the time, unless a special token may be spelled in the text."""
    if len(text) > WHOLE or _SPECIAL_BEGINS in text:
        return _count_plain(name, text)
    try:
        return len(encode_flat(text)) // 4
    except UnicodeEncodeError:
        return _count_plain(name, text)


def _count_plain(name: str, text: str) -> int:
    return sum(len(encode(piece, vocabulary=name)) for piece in split_long_text(text))


def _count_composed(name: str, text: str) -> int:
    """Qwen composes characters first. A long run of marks is cut, since composing it takes quadratic time."""
    if text.isascii():
        return _count_plain(name, text)
    total = 0
    for piece in between_long_runs(text):
        total += _count_plain(name, ucd_3_2_0.normalize("NFC", piece))
    return total


def _count_with_tags(name: str, text: str) -> int:
    """Gemma's vocabularies hold some HTML tags as whole tokens, which splintr takes for special ones."""
    pieces = _TAGS.split(text)
    tag_count = len(pieces) - 1
    return tag_count + sum(_count_plain(name, piece) for piece in pieces if piece)


_TAGS = re.compile(
    "</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|s|sub|sup|code)>"
)

# Of each vocabulary the family of its estimate, and the digest of the ids of `PROBE`.
_VOCABULARIES = {
    "o200k_base": ("o200k", "1a16ff0d8afbd0b9"),
    "cl100k_base": ("cl100k", "d4b3bb9479351c11"),
    "gemma2": ("gemini", "d054beb915bb9a9d"),
    "gemma3": ("gemini", "e278df52168090e9"),
    "gemma4": ("gemini", "e278df52168090e9"),
    "llama3": ("llama3", "4769d7f224834319"),
    "qwen3": ("qwen3", "760b227603bd3671"),
    "deepseek_v3": ("deepseek", "b291047342fde53e"),
    "mistral_v3": ("mistral", "6abaa27c246a4a7c"),
    "glm4": ("llama3", "0798f1aa21da56df"),
    "kimi_k2": ("o200k", "cbd648884bca3767"),
    "kimi_k3": ("o200k", "cbd648884bca3767"),
}
