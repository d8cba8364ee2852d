"""Requests to take away: one as JSON, one as a command, all of a session as an archive."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

import msgspec

from lamina.inspector.building import find_call, render_request
from lamina.inspector.settings import BuildSettings
from lamina.inspector.views import Inspector, Json


def export_request(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """The request as it would be sent, as JSON."""
    built = inspector.built(session_id, settings)
    find_call(built, number)
    return render_request(built, inspector.builder.build_call(built, number))


def write_curl(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """A command that sends the request. Its key comes from the environment of whoever runs it."""
    request = export_request(inspector, session_id, number, settings)
    lines = [
        "curl https://api.openai.com/v1/chat/completions",
        "-H 'Content-Type: application/json'",
        '-H "Authorization: Bearer $OPENAI_API_KEY"',
        f"-d {shlex.quote(msgspec.json.encode(request).decode())}",
    ]
    return {"curl": " \\\n  ".join(lines)}


def export_session(inspector: Inspector, session_id: str, settings: BuildSettings) -> Json:
    """A session as an archive of its requests, in the manner of HAR: one entry for each call."""
    built = inspector.built(session_id, settings)
    entries = []
    for call in built.calls:
        if call.error:
            continue
        entries.append(
            {
                "startedDateTime": _moment(call.at),
                "request": render_request(built, inspector.builder.build_call(built, call.number)),
                "usage": {
                    "input": call.tokens,
                    "read": call.read,
                    "written": call.written,
                    "output": call.output,
                },
                "lamina": {"cut": call.cut, "continues": call.continues, "dollars": call.dollars},
            }
        )
    return {"log": {"version": "1.0", "creator": {"name": "lamina"}, "entries": entries}}


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat()
