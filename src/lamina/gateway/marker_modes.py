"""Decides which cache markers (breakpoints) a request leaves with: its own, lamina's, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.caches import rules_for
from lamina.dialects.json_values import list_objects
from lamina.fitting.markers import Breakpoints, keeps_only_marked
from lamina.gateway.calls import IncomingRequest

_FIELD = "cache_control"
_KEY = b'"cache_control"'
"""Every marker has it. Inside a text its quotes are escaped, so a text about markers does not."""


def choose_breakpoints(incoming: IncomingRequest) -> Breakpoints:
    """What `fit_request` does with the markers of a request."""
    setting = incoming.upstream.settings.policy.breakpoints
    if setting == "auto" and not incoming.upstream.profile.reads_markers:
        return "keep"
    return setting


def plans_markers(incoming: IncomingRequest) -> bool:
    """Whether the markers of a request change, so that its bytes cannot leave as they came.

    This is asked of every request, so it looks at bytes first and at blocks only if it must.
    """
    breakpoints = choose_breakpoints(incoming)
    if breakpoints != "auto":
        return breakpoints != "keep"
    rules = rules_for(incoming.model, dialect=incoming.dialect.name)
    markers = incoming.dialect.cache.markers
    if markers is None or markers.cache != rules.match:  # this API cannot mark what that cache reads
        return False
    if not keeps_only_marked(rules):
        return False
    text = incoming.body.text
    # A text has no more tokens than bytes, so this one is too short for the cache.
    if len(text) < rules.least(incoming.model):
        return False
    if incoming.dialect.name == "bedrock_converse":
        return b'"cachePoint"' not in text
    return _KEY not in text or not _has_marker(incoming.request)


def _has_marker(request: Mapping[str, Any]) -> bool:
    """Whether a request of the Messages API has a marker. The arguments of a call may have a field like it.

    Most clients mark the system text, and the end of the last message.
    """
    if request.get(_FIELD) or _has_marked_block(request.get("system")):
        return True
    for message in reversed(list_objects(request.get("messages"))):
        if _has_marked_block(message.get("content")):
            return True
    return _has_marked_block(request.get("tools"))


def _has_marked_block(blocks: Any) -> bool:
    return any(map(_is_marked, list_objects(blocks)))


def _is_marked(block: Mapping[str, Any]) -> bool:
    return bool(block.get(_FIELD)) or _has_marked_block(block.get("content"))
