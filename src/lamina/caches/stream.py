"""What a prefix cache sees of a request: its blocks in the order in which the provider reads them.

The stream is tools, then system text, then the blocks of the messages. Cache markers are removed, and a
string is read as one block of text.

Fields of an API are read by name, so their order means nothing and they are sorted. JSON of the application,
such as the schema of a tool or the input of a call, is shown to the model as it was written: there the order
of keys is part of the prefix.

A dialect makes the stream of a request. The simulators run caches on it, the planner places markers on it,
and `lamina.diagnose` compares two of them. This module knows no provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from lamina.core.hashing import canonical_json
from lamina.errors import BadInput

Sort = Literal["tool", "system", "text", "call", "result", "thinking", "image", "document", "raw"]
"""What a block is; "system" is system or developer text, wherever it stands."""


class StreamBlock(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One position of the stream.

    `data` are its bytes as a cache sees them, without markers. `place` is its path in the request, `name`
    what a reader would call it (a tool's name, a title, a file). `opens`: it begins a message. `marker` is
    the lifetime that a cache marker on it requests ("5m", "1h", "30m"), "" without a marker. `markable`: the
    provider takes a marker here. `tokens` is 0 until the blocks are counted. `form` is set where lamina knows
    that it sent the block in a lower form.
    """

    sort: Sort
    role: str
    data: bytes
    place: str
    opens: bool = False
    name: str = ""
    marker: str = ""
    markable: bool = False
    tokens: int = 0
    form: str = "full"


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a cache sees it.

    `settings` are the values of those parameters that some cache depends on, as bytes under the names of
    `SETTINGS`. A parameter that is absent, or has its documented default, is not in it. `key` routes requests
    to one cache (`prompt_cache_key`, `cache_salt`). `cached` names an explicit cache that the request reads.
    `automatic` is the lifetime of a marker for the whole request, or the mode of caching that it requests.
    """

    dialect: str
    model: str
    blocks: tuple[StreamBlock, ...]
    settings: Mapping[str, bytes] = {}
    key: str = ""
    cached: str = ""
    automatic: str = ""

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)

    def chain(self, *, root: bytes = b"") -> list[bytes]:
        """The hash of the stream up to and including each block, starting from `root`."""
        link = blake2b(root, digest_size=16).digest()
        links = []
        for block in self.blocks:
            link = link_block(link, block)
            links.append(link)
        return links

    def weighed(self, tokens: Iterable[int]) -> Stream:
        """The stream with these token counts, one for each of its first blocks."""
        weighed = [
            msgspec.structs.replace(block, tokens=count)
            for block, count in zip(self.blocks, tokens, strict=False)
        ]
        return msgspec.structs.replace(self, blocks=tuple(weighed) + self.blocks[len(weighed) :])


def write_seam(block: StreamBlock) -> bytes:
    """What a cache sees before the bytes of a block: whether it begins a message, and who speaks.

    `+user:` begins a message of the user. The same text is another prompt if the system says it.
    """
    joint = "+" if block.opens else "~"
    return f"{joint}{block.role}:".encode()


def link_block(previous_link: bytes, block: StreamBlock) -> bytes:
    """The hash of a stream with one more block: its bytes, its role, and whether it begins a message."""
    return blake2b(previous_link + write_seam(block) + block.data, digest_size=16).digest()


SETTINGS = (
    "tool_choice",
    "parallel",
    "thinking",
    "effort",
    "format",
    "verbosity",
    "speed",
    "tier",
    "web_search",
    "citations",
    "images",
    "task_budget",
    "geo",
    "other",
)
"""Parameters that a cache may depend on, in one vocabulary for all dialects. "other" are unknown ones."""


def remove_markers(value: Any, markers: frozenset[str]) -> Any:
    """A JSON object without the fields that are cache markers.

    If it has none, this returns the same object. Only the fields of the object itself are looked at.
    """
    if isinstance(value, Mapping) and not markers.isdisjoint(value):
        return {name: inner for name, inner in value.items() if name not in markers}
    return value


OWN_JSON = frozenset(
    (
        "input",  # of a call, Anthropic
        "input_schema",
        "input_examples",
        "parameters",  # of a tool, OpenAI, Gemini and Ollama
        "parametersJsonSchema",
        "parameters_json_schema",
        "arguments",  # of a call, Ollama
        "args",  # of a call, Gemini
        "response",  # of a result, Gemini
        "schema",  # of an answer
        "responseSchema",
        "responseJsonSchema",
    )
)
"""Fields whose value is JSON of the application. A model sees it as it was written."""

_AS_WRITTEN = msgspec.json.Encoder()

_MAPPING_TYPES = (dict, Mapping)
"""To look for a dict first is several times as fast."""


def encode_block(value: Any) -> bytes:
    """The bytes of one block as a cache sees them: fields of the API sorted, JSON of the application not."""
    try:
        encoded = _encode_application_json(value)
    except RecursionError:
        encoded = value  # `canonical_json` refuses it, and says why
    return canonical_json(encoded)


def same_but_key_order(one: bytes, other: bytes) -> bool:
    """Whether two blocks differ in nothing but the order of keys."""
    if one == other or len(one) != len(other):
        return False
    return _sort_keys(one) == _sort_keys(other)


def _encode_application_json(value: Any) -> Any:
    """The value with the application's JSON already encoded, its keys in the order they were written.

    `{"name": "read", "input": {"b": 1, "a": 2}}` keeps `b` before `a`, since the model sees it so.
    """
    if isinstance(value, _MAPPING_TYPES):
        encoded = dict(value)
        for name, inner in value.items():
            if not isinstance(inner, str):  # most are, and need no call
                encoded[name] = _encode_field(name, inner)
        return encoded
    if isinstance(value, (list, tuple)):
        return [_encode_application_json(inner) for inner in value]
    return value


def _encode_field(name: Any, value: Any) -> Any:
    """The value of a field. JSON of the application is encoded as it was written.

    A value that is not JSON stays as it is: `canonical_json` refuses it, and says why.
    """
    if not isinstance(value, (*_MAPPING_TYPES, list, tuple)):
        return value
    if name not in OWN_JSON:
        return _encode_application_json(value)
    try:
        return msgspec.Raw(_AS_WRITTEN.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return value


def _sort_keys(data: bytes) -> bytes:
    """A block with the keys of all its objects in order; anything but JSON stays as it is."""
    try:
        return canonical_json(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError, BadInput):
        return data
