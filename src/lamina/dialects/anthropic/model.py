"""Says what the Messages API allows, for all models and by a model's name: dated data, and lookups.

Names of models come in many forms (with a date, with a cloud's prefix, with dots), so only family and version
are read. A name without them gets the rules of the models that have the fewest. Read 2026-09-26. At the end
stand the readers of a message that all modules share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lamina.core.bound_thinking import Binding
from lamina.dialects.json_values import LIST_TYPES, Json, mapping_or_empty, text_or_empty, to_dict_or_empty
from lamina.dialects.words import OPENING
from lamina.models.facts import model_or_none

NAME = "anthropic"
"""The name of this dialect."""

OPENING_MESSAGE = {"role": "user", "content": OPENING}
"""What `render` puts first where the assistant would begin: the API wants the user first."""

MARKER = "cache_control"
"""The field of a block, or of a request, that ends a cached prefix."""

MARKER_LIMIT = 4
"""Markers that the API takes in one request, the one for the whole request included."""

DEFAULT_LIFETIME = "5m"
"""The lifetime of a marker that names none."""

LONG_LIFETIME = "1h"
"""The lifetime that must come before all shorter ones."""

THINKING_TYPES = ("thinking", "redacted_thinking")
"""What a model thought, in words or encrypted."""

UNMARKABLE_TYPES = (*THINKING_TYPES, "fallback", "mcp_tool_listing")
"""Blocks that take no marker. All others of anthropic 2.8 have the field."""

SERVER_CALL_TYPES = ("server_tool_use", "mcp_tool_use")
"""Calls of tools that the API itself runs."""

NAME_LIMIT = 128
"""Characters that a tool's name may have."""

_SAFE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""A tool's name, or a call's id, that the API accepts: "read_file", but not "fs.read"."""

_UNSAFE_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")

Since = Mapping[str, tuple[int, int]]
"""Families of models, each with the version from which something holds."""

SYSTEM_MESSAGES: Since = MappingProxyType(
    {"fable": (5, 0), "mythos": (5, 0), "opus": (4, 8), "sonnet": (5, 5)}
)
"""Messages may have the role "system". Nobody has verified it for Sonnet 5.5."""

NO_SYSTEM_MESSAGES = (4, 8)
"""Before this version no family takes the role "system" in messages. The API answers "Unexpected role"."""

NO_SAMPLING: Since = MappingProxyType(
    {"opus": (4, 7), "sonnet": (5, 0), "haiku": (5, 0), "fable": (5, 0), "mythos": (5, 0)}
)
"""No temperature or top_p. Nobody has verified it for Haiku."""

NO_FORCED_TOOL: Since = MappingProxyType(
    {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5)}
)
"""The model may not be made to call a tool."""

TOOL_SEARCH: Since = MappingProxyType(
    {"opus": (4, 0), "sonnet": (4, 0), "haiku": (4, 5), "fable": (5, 0), "mythos": (5, 0)}
)
"""The API searches for tools that are loaded later. Read 2026-11-17."""

NO_PREFILL = (4, 6)
"""From this version on, in every family, a conversation may not end with the assistant."""

_FAMILY_FIRST = re.compile(
    r"claude-(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)", re.ASCII
)
"""Newer names: "claude-opus-4-5-20251101" is opus 4.5, "claude-sonnet-4-20250514" has no minor."""

_VERSION_FIRST = re.compile(
    r"claude-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?-(?P<family>[a-z]+)", re.ASCII
)
"""Older names: "claude-3-5-haiku-20241022" is haiku 3.5."""


def read_version(model: str) -> tuple[str, tuple[int, int]]:
    """Family and version of a model; an empty family and version 0.0 if the name does not say.

    `claude-opus-5-5` is `("opus", (5, 5))`. Older names have the version first: `claude-3-5-sonnet` is
    `("sonnet", (3, 5))`.
    """
    match = _FAMILY_FIRST.search(model) or _VERSION_FIRST.search(model)
    if match is None:
        return "", (0, 0)
    return match["family"], (int(match["major"]), int(match["minor"] or 0))


def find_binding(request: Mapping[str, Any]) -> Binding:
    """What a changed past does to thinking in this request. A request may choose; else the model decides.

    "drop" if the server drops thinking that does not fit, "strict" if it refuses the request, "none" if the
    past may change. What a model does is a fact of it or of the nearest one, which a user's own file may say.
    """
    match request.get("thinking"):
        case {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}:
            return "drop"
        # Whoever names another behaviour asks for the check, also with an older account.
        case {"block_binding": {"prefix_mismatch_behavior": str()}}:
            return "strict"
    # Accounts made before 2026-08-31 are checked only if they ask. No request says how old its account is, so
    # all are taken for new ones.
    model = model_or_none(read_model(request))
    if model is None:
        return "none"
    return model.binding


def asks_to_clear(request: Mapping[str, Any]) -> bool:
    """Whether the caller asked the server to leave out old content."""
    return bool(mapping_or_empty(request.get("context_management")).get("edits"))


def continues_thread(request: Mapping[str, Any]) -> bool:
    """Whether the server has what came before: such a request brings the messages of a new turn only."""
    return mapping_or_empty(request.get("thread")).get("type") == "continue"


def takes_system_messages(model: str) -> bool:
    """Whether the model is known to take messages with the role "system"."""
    return is_since(model, SYSTEM_MESSAGES)


def refuses_system_messages(model: str) -> bool:
    """Whether the model is known to refuse system messages.

    Of some models it is not known; clients send them there, so they are passed on.
    """
    family, number = read_version(model)
    return bool(family) and number < NO_SYSTEM_MESSAGES


def rejects_prefill(model: str) -> bool:
    """Whether a conversation may not end with the assistant."""
    return read_version(model)[1] >= NO_PREFILL


def is_safe_name(name: str) -> bool:
    """Whether the API accepts a tool's name."""
    return _SAFE_NAME.fullmatch(name) is not None


def make_safe_name(name: str) -> str:
    """The tool's name with every character that the API refuses replaced: "fs.read" becomes "fs_read"."""
    return _UNSAFE_CHARACTER.sub("_", name)[:NAME_LIMIT] or "tool"


def read_model(request: Mapping[str, Any]) -> str:
    """The name of the request's model, or ""."""
    return text_or_empty(request.get("model"))


def is_since(model: str, table: Since) -> bool:
    """Whether a model's version is the one in the table, or a later one of its family.

    With `{"opus": (4, 6)}` it holds for `claude-opus-5`, and not for `claude-sonnet-5`.
    """
    family, number = read_version(model)
    return family in table and number >= table[family]


def read_role(message: Any) -> str:
    """The role of a message as the caller sent it, or as `render` wrote it."""
    return str(to_dict_or_empty(message).get("role"))


def read_blocks(message: Any) -> Sequence[Json]:
    """The blocks of a message. A string counts as one text block.

    `{"content": "Hi"}` has the block `{"type": "text", "text": "Hi"}`. Content of another type has none.
    """
    content = to_dict_or_empty(message).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, LIST_TYPES):
        return ()
    return list(map(to_dict_or_empty, content))


def begins_with_compaction(blocks: Sequence[Json]) -> bool:
    """Whether the first block of a message is a compaction, which replaces everything that came before it.

    Such a message may come first, though it is the assistant's.
    """
    return bool(blocks) and blocks[0].get("type") == "compaction"


def is_server_result(block: Any) -> bool:
    """Whether a tool on the API's side gave this result: the type may be "web_search_tool_result"."""
    return str(to_dict_or_empty(block).get("type")).endswith("_tool_result")
