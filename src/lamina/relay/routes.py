"""Reads from a path which API a request is for, and whether to generate, to count, or to pass it on unread.

Paths are matched by their end, since clients put different things before it: `/v1/responses`,
`/openai/v1/responses`, `/backend-api/codex/responses`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Action = Literal["generate", "count", "pass"]


class RouteMatch(NamedTuple):
    """What a path asks for. `dialect` is "" if the gateway only passes the request on.

    `model` is the model in the path, `streams` says that the path asks for a stream. Gemini and Bedrock
    have both there.
    """

    action: Action
    dialect: str = ""
    model: str = ""
    streams: bool = False


PASS = RouteMatch("pass")

_ENDINGS = (
    ("/messages/count_tokens", RouteMatch("count", "anthropic")),
    ("/messages", RouteMatch("generate", "anthropic")),
    ("/chat/completions", RouteMatch("generate", "openai_chat")),
    ("/responses", RouteMatch("generate", "openai_responses")),
    ("/api/chat", RouteMatch("generate", "ollama")),
)
_GEMINI_VERBS: dict[str, RouteMatch] = {
    "generateContent": RouteMatch("generate", "gemini"),
    "streamGenerateContent": RouteMatch("generate", "gemini", streams=True),
    "countTokens": RouteMatch("count", "gemini"),
}
_GEMINI_MODEL = re.compile(r"/(?:models|tunedModels)/(.+)")
"""The model may have slashes: `/v1beta/models/team/model:generateContent`."""

_CONVERSE = re.compile(r"/model/([^/]+(?:/[^/]+)?)/converse(-stream)?$")
"""The model may have a slash, as in the name of an inference profile: `arn:aws:…:inference-profile/us.…`."""

INSPECTOR = "/lamina/inspect"
"""Where the inspector's pages are."""

PROBES = frozenset(("/", "/api/hello"))
"""Paths that Claude Code asks with HEAD to see whether somebody answers."""


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or something in it."""
    return path.startswith(folder) and path[len(folder) :][:1] in ("", "/")


@lru_cache(maxsize=256)
def match_route(method: str, path: str) -> RouteMatch:
    if method != "POST":
        return PASS
    for ending, route in _ENDINGS:
        if path.endswith(ending):
            return route
    converse = _CONVERSE.search(path)
    if converse is not None:
        streams = converse[2] is not None
        return RouteMatch("generate", "bedrock_converse", converse[1], streams=streams)
    place, _, verb = path.rpartition(":")
    gemini = _GEMINI_VERBS.get(verb, PASS)
    model = _GEMINI_MODEL.search(place)
    if model is None or gemini is PASS:
        return PASS
    return gemini._replace(model=model[1])
