"""Reads how models are named: one model under the many names that vendors, hosts, gateways and SDKs write.

    us.anthropic.claude-opus-4-5-20251101-v1:0     a region, a vendor, a date, a version of the host
    openrouter/anthropic/claude-4.5-opus:thinking  a path, another order of words, a variant
    ft:gpt-4o-2024-08-06:acme::9f31                a tuning of someone's own

`key_of` spells a name in one way, `beginnings` says where the model's own name may begin in it, and `tail_of`
what the words after it mean. This file has no list of models. A word that it does not know makes another
model of a name: `o1-pro` is not `o1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from lamina.core.text.characters import lower_ascii

LONGEST = 200
"""Characters of a name that are read."""

Tail = Literal["same", "unpriced", "wide", "other"]
"""What follows a model's name: the same model at the same price; the same one at a price of its own; the same
one with a window of a million tokens; or another model."""


def key_of(name: str) -> str:
    """A name in one spelling, without its path; vendors and regions before it stay.

    `Claude-4.5_Sonnet` becomes `claude-sonnet-4-5`, `llama-v3p1:8b` becomes `llama3-1-8b`.
    """
    return _normalise_spelling(_without_path(name))


@lru_cache(maxsize=1024)
def plain_name(name: str) -> str:
    """A model's own name in one spelling: `us.anthropic.claude-opus-4.5` is `claude-opus-4-5`."""
    return _normalise_spelling(own_name(name))


def own_name(name: str) -> str:
    """A model's own name as it is written: no vendor, region or path, no mark of fine-tuning.

    `us.anthropic.claude-opus-5`, `anthropic/claude-opus-5` and `claude-opus-5` are one model.
    """
    bare = _without_path(name).removeprefix(TUNED)
    return _BEFORE.sub("", bare, count=1)


def beginnings(key: str) -> list[int]:
    """Where a model's own name may begin in a key: with everything before it, with less, with nothing."""
    starts = [0]
    for _ in range(_MOST_PREFIXES):
        prefix = _ONE_BEFORE.match(key, starts[-1])
        if prefix is None:
            break
        starts.append(prefix.end())
    return starts


def is_boundary(key: str, end: int) -> bool:
    """Whether a name may end there: at the end, or before a sign that is no part of a word or version."""
    if end == len(key):
        return True
    if key[end] not in _SIGNS:
        return False
    return _NEXT_VERSION.match(key, end) is None


def tail_of(rest: str) -> Tail:
    """What the words after a model's name mean."""
    if _SAME.fullmatch(rest):
        return "same"
    if _UNPRICED.fullmatch(rest):
        return "unpriced"
    if _WIDE.fullmatch(rest):
        return "wide"
    return "other"


@lru_cache(maxsize=1024)
def is_named(name: str, base: str) -> bool:
    """Whether `name` is a name of the model `base`: with a date, a host, a variant, and no other model."""
    plain = plain_name(name)
    plain_base = plain_name(base)
    if not plain.startswith(plain_base) or not is_boundary(plain, len(plain_base)):
        return False
    return tail_of(plain[len(plain_base) :]) != "other"


@lru_cache(maxsize=1024)
def split_version(key: str) -> tuple[str, Version]:
    """The family that a key names, with `#` where its version stands, and the version.

    `claude-opus-5-5-20261101` is ("claude-opus-#", (5, "5")), `gpt-4o-mini` is ("gpt-#o-mini", (4, "")).
    """
    bare = _ENDING.sub("", key)
    match = _VERSION_NUMBERS.search(bare)
    if match is None:
        return bare, NO_VERSION
    family = f"{bare[: match.start()]}#{bare[match.end() :]}"
    return family, (int(match["major"]), match["minor"] or "")


Version = tuple[int, str]
"""Major and minor version. The minor one is read as decimals are: grok-4.20 came before grok-4.3."""

NO_VERSION: Version = (-1, "")
"""Lower than every version."""


def shorten_family(family: str) -> Iterator[str]:
    """A family, and then with one word less at its end each time: `gpt-#-sol`, `gpt-#`, `gpt`."""
    while family:
        yield family
        family = family.rpartition("-")[0]


def name_provider(name: str, dialect: str) -> str:
    """The first word of the models of a provider that the path before a name, or else the dialect, names."""
    for word in (*reversed(lower_ascii(name[:LONGEST]).split("/")[:-1]), dialect):
        if word in _FIRST_WORDS:
            return _FIRST_WORDS[word]
    return ""


_FIRST_WORDS = {
    provider: word
    for word, providers in (
        ("claude", "anthropic"),
        ("gpt", "openai"),
        ("gemini", "gemini google"),
        ("deepseek", "deepseek"),
        ("kimi", "moonshot moonshotai"),
        ("minimax", "minimax"),
        ("glm", "zai z-ai"),
        ("grok", "xai x-ai"),
        ("mistral", "mistral mistralai"),
        ("qwen", "dashscope"),
    )
    for provider in providers.split()
}
"""The first word of a provider's models, by the names of providers in paths and of dialects. A dialect that
many providers speak names none."""


def read_tuned_base(name: str) -> str:
    """The name of the model that a fine-tuned one began as, with the mark of tuning; "" for any other.

    `ft:gpt-4o-2024-08-06:acme::9f31` and `gpt-4o-2024-08-06.ft-9f31` are both `ft:gpt-4o-2024-08-06`.
    """
    bare = _without_path(name)
    if bare.startswith(TUNED):
        base = bare.removeprefix(TUNED).split(":", 1)[0]
        return TUNED + _normalise_spelling(base)
    base, mark, _ = bare.partition(".ft-")
    if not mark:
        return ""
    return TUNED + _normalise_spelling(base)


TUNED = "ft:"
"""How the name of a fine-tuned model begins."""

# What may come before a model's name, with a sign between: a vendor, a host, a gateway, an SDK. None of them
# is the first word of a model's own name, as "mistral" or "deepseek" are.
_HOSTS = (  # the longer of two that begin alike comes first
    "anthropic|openai|google-gla|google-vertex|google|vertexai|vertex|azure-openai|azure-ai|azure|"
    "bedrock-converse|bedrock|databricks|openrouter|groq|together|fireworks|fw|ollama|litellm|alibaba|"
    "moonshotai|zai-org|zai|xai"
)
_DOTTED = r"[a-z][a-z0-9]*(?:-gov)?\.(?=[a-z])"  # `us.`, `us-gov.`, `anthropic.`
_ONE_BEFORE = re.compile(
    rf"(?:{_DOTTED}|(?:{_HOSTS})[:-](?=[a-z])|(?:mistral|deepseek|cohere|gemini):(?=[a-z]))"
)
_BEFORE = re.compile(rf"^(?:{_ONE_BEFORE.pattern}){{1,3}}")
_MOST_PREFIXES = 3

_SIGNS = "-:@[("
# A number of one or two digits after a name is a version that makes another model: gpt-5 and gpt-5-4.
# Sizes (8b), pairs of numbers that are a date (05-06) and releases of a host (1:0) are none.
_NEXT_VERSION = re.compile(
    r"-(?![01][0-9]-(?:[0-3][0-9]|20[0-9]{2})(?![0-9a-z]))[0-9]{1,2}(?![0-9a-z]|:[0-9])"
)

# `-20250514`, `@2024-08-06`, `-05-2024`, `-0613`, `-250120`
_DATE = (
    r"[-@:]20[0-9]{6}|[-@]20[0-9]{2}-[0-9]{2}-[0-9]{2}|[-@][01][0-9]-(?:20[0-9]{2}|[0-3][0-9])"
    r"|[-@][0-9]{3,4}(?![0-9a-z])|-2[0-9]{5}(?![0-9])"
)
# `-latest`, `-preview`, `-v1:0`, `-v2`
_RELEASE = (
    r"[-:@](?:latest|default|preview|exp|experimental|beta|stable)|-v?[0-9]:[0-9]|-v[0-9](?:-[0-9])?"
    r"|:[0-9](?![0-9a-z])"
)
# `-high`, `(low)`, `:thinking`, `-thinking-32k`, `:nitro`, `-70b-instruct`, `-a22b-fp8`
_EFFORT = r"[-:(](?:none|minimal|low|medium|high|xhigh)\)?(?![a-z])"
_THOUGHT = r"[-:](?:non?-?)?(?:thinking|think|reasoning)(?:-[0-9]+k|:[0-9]+)?(?![a-z])"
_ROUTE = r":(?:online|nitro|floor|exacto)|-maas|-cloud"
_WEIGHTS = (
    r"[-:][0-9]+b(?![a-z])|-a[0-9]+b|-[0-9]+e(?![a-z])|-(?:instruct|it|hf)(?![a-z])"
    r"|-(?:fp8|fp16|bf16|int4|int8|fp4|nvfp4|awq|gptq|gguf|mlx)|-q[2-8](?:-[0-9a-z]){0,2}(?![0-9a-z])"
)
_ONE_WORD = rf"{_DATE}|{_RELEASE}|{_EFFORT}|{_THOUGHT}|{_ROUTE}|{_WEIGHTS}|[-:][0-9]+-[0-9]+b(?![a-z])"
# A name has two or three of these words. Some texts can be read as one word or as two (`-v1:0`), so without a
# limit the time would double with each of them, and a client chooses the name.
_WORDS = rf"(?:{_ONE_WORD}){{0,6}}"
_SAME = re.compile(_WORDS)
# What says nothing of the family, at the end of a name. `-v4` is no release in `deepseek-v4`, and the 4 of
# `glm-4-9b` no part of a size.
_ENDING = re.compile(
    rf"(?:{_DATE}|[-:@](?:latest|default|preview|exp|experimental|beta|stable)|-v?[0-9]:[0-9]|{_EFFORT}"
    rf"|{_THOUGHT}|{_ROUTE}|{_WEIGHTS}|\[1m\]|:[a-z]+){{1,6}}$"
)
# The version is the first such number. `5-5` in `claude-opus-5-5`, `4` in `gpt-4o` and in `gpt-4-32k`. A size
# such as `20b` is none.
_VERSION_NUMBERS = re.compile(
    r"(?<![0-9])(?P<major>[0-9]{1,2})(?![0-9b])(?:-(?P<minor>[0-9]{1,2})(?![0-9a-z]))?"
)
# Someone else sets the price: nobody asks one, or there is a discount for waiting, or a surcharge for haste.
_UNPRICED = re.compile(rf"{_WORDS}[-:](?:free|batch|flex|priority|extended)")
_WIDE = re.compile(rf"{_WORDS}(?:\[1m\]|[-:]1m){_WORDS}")

_VERSION = re.compile(r"(?<=[0-9])[.p](?=[0-9])")  # the sign in `4.5` and `3p1`
_SIZE_TAG = re.compile(r":(?=[0-9]+(?:-[0-9]+)?b(?![a-z]))")  # the sign in `llama3:8b`
_AZURE_3_5 = re.compile(r"\bgpt-35(?![0-9])", re.ASCII)
_CLAUDE_NUMBER_FIRST = re.compile(r"claude-([4-9](?:-[0-9])?)-(opus|sonnet|haiku|fable|mythos)(?![a-z])")
_CLAUDE_NUMBER_LAST = re.compile(r"claude-(opus|sonnet|haiku)-(3(?:-[0-9])?)(?![0-9])")
_POINT_ZERO = re.compile(r"((?:claude-[a-z]+|gemini)-[0-9])-0(?![0-9])")
_OPEN_FAMILY = re.compile(r"\b(?:meta-)?(llama|qwen|gemma|codellama|mixtral)-?v?(?=[0-9])", re.ASCII)


def _without_path(name: str) -> str:
    return lower_ascii(name[:LONGEST]).rpartition("/")[2]


def _normalise_spelling(name: str) -> str:
    """One sign between words and between the numbers of a version, and one order of words."""
    key = _VERSION.sub("-", name.replace("_", "-").replace("--", "-"))
    key = _SIZE_TAG.sub("-", key)
    key = _AZURE_3_5.sub("gpt-3-5", key)
    key = _CLAUDE_NUMBER_FIRST.sub(r"claude-\2-\1", key)
    key = _CLAUDE_NUMBER_LAST.sub(r"claude-\2-\1", key)
    key = _POINT_ZERO.sub(r"\1", key)
    return _OPEN_FAMILY.sub(r"\1", key)
