"""Exports requests: one as JSON, one as a `curl` command, all of a session as an archive."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from lamina.inspector.built_values import BuiltCall, BuiltSession
from lamina.inspector.settings import BuildSettings
from lamina.inspector.views import Inspector, Json
from lamina.replay.model_calls import CHAT


class _Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests of a dialect go, and with which headers. Keys come from the environment."""

    url: str
    headers: tuple[str, ...] = ()


_ENDPOINTS = {
    CHAT: _Endpoint(
        url="https://api.openai.com/v1/chat/completions", headers=("Authorization: Bearer $OPENAI_API_KEY",)
    ),
    "openai_responses": _Endpoint(
        url="https://api.openai.com/v1/responses", headers=("Authorization: Bearer $OPENAI_API_KEY",)
    ),
    "anthropic": _Endpoint(
        url="https://api.anthropic.com/v1/messages",
        headers=("x-api-key: $ANTHROPIC_API_KEY", "anthropic-version: 2023-06-01"),
    ),
    "gemini": _Endpoint(
        url="https://generativelanguage.googleapis.com/v1beta/models/{model}:generateContent",
        headers=("x-goog-api-key: $GEMINI_API_KEY",),
    ),
    "bedrock_converse": _Endpoint(
        url="https://bedrock-runtime.us-east-1.amazonaws.com/model/{model}/converse",
        headers=("Authorization: Bearer $AWS_BEARER_TOKEN_BEDROCK",),
    ),
    "ollama": _Endpoint(url="http://127.0.0.1:11434/api/chat"),
}


def export_request(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """The request as it was sent, or would be, as JSON."""
    built = inspector.built(session_id, settings)
    return inspector.builder.build_with_body(built, number).request


def write_curl(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """A command that sends the request. Its key comes from the environment of whoever runs it."""
    request = export_request(inspector, session_id, number, settings)
    built = inspector.built(session_id, settings)
    endpoint = _ENDPOINTS.get(built.dialect, _ENDPOINTS[CHAT])
    lines = [
        f"curl {find_endpoint(built)}",
        "-H 'Content-Type: application/json'",
        *(f'-H "{header}"' for header in endpoint.headers),
        f"-d {shlex.quote(msgspec.json.encode(request).decode())}",
    ]
    return {"curl": " \\\n  ".join(lines)}


def find_endpoint(built: BuiltSession) -> str:
    """The address that requests of a session go to, at their provider."""
    endpoint = _ENDPOINTS.get(built.dialect, _ENDPOINTS[CHAT])
    return endpoint.url.format(model=quote(built.session.summary.model, safe=""))


def export_session(inspector: Inspector, session_id: str, settings: BuildSettings) -> Json:
    """A session as an archive of its requests, in the manner of HAR: one entry for each call."""
    built = inspector.built(session_id, settings)
    entries = []
    for call in built.calls:
        if call.error:
            continue
        entries.append(
            {
                "startedDateTime": write_moment(call.at),
                "request": inspector.builder.build_call(built, call.number).request,
                "usage": {
                    "input": call.tokens,
                    "read": call.read,
                    "written": call.written,
                    "output": call.output,
                },
                "lamina": {"dollars": call.dollars} | show_remarks(call),
            }
        )
    return {"log": {"version": "1.0", "creator": {"name": "lamina"}, "entries": entries}}


def show_remarks(call: BuiltCall) -> Json:
    """What lamina did with a request, and what became of it."""
    return {
        "cut": call.cut,
        "continues": call.continues,
        "status": call.status,
        "follows": call.follows,
        "why": call.why,
        "recalled": call.recalled,
    }


def write_moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat()
