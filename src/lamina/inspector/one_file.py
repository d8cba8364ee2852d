"""Writes the inspector into one HTML file, to send to a colleague.

The file holds the answers that the server would give for each session as it was recorded. Its content policy
names the inspector's own scripts by their hashes, so no other script in it runs. The files of the page are
read here, for a server as well.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from lamina.errors import BadInput
from lamina.inspector.comparisons import compare_requests
from lamina.inspector.redaction import Redaction
from lamina.inspector.request_views import show_request
from lamina.inspector.segment_views import show_segment
from lamina.inspector.views import Inspector, show_alternatives, show_session, show_sessions

MODULES = (
    "dom.js",
    "api.js",
    "address.js",
    "colours.js",
    "picture.js",
    "search.js",
    "map.js",
    "segment.js",
    "body.js",
    "sessions.js",
    "request.js",
    "requests.js",
    "compare.js",
    "whatif.js",
    "app.js",
)
"""The scripts of the page, each after those that it imports from."""

MOST_SEGMENTS = 4_000
"""Segments of one session whose texts are in the page."""

MOST_ENTRIES = 300_000
"""Entries of all requests of one session that are in the page; the last requests come first."""

# `import { h, number } from "./dom.js";`
_IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\./([a-z]+)\.js\";$", re.MULTILINE)

# `export function h(`, `export async function get(`, `export const isSaved =`
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const) ([A-Za-z]+))", re.MULTILINE)

FILE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def save_session(inspector: Inspector, session_id: str, *, is_redacted: bool = False) -> str:
    """The page of one session. Raises BadInput if it is not there."""
    inspector.open(session_id)
    redaction = None
    if is_redacted:
        redaction = Redaction()
    return write_page(inspector, session=session_id, redaction=redaction)


def write_page(inspector: Inspector, *, session: str = "", redaction: Redaction | None = None) -> str:
    """The whole page as text: of all sessions, or of one session."""
    data = encode_json(_collect(inspector, session, redaction)).decode()
    # "</script>" in a text must not end the element that holds the data.
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    script = _join_scripts()
    style = _read("style.css")
    policy = (
        f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _read("index.html")
    page = re.sub(r"\n *<link[^<>]*>", "", page)
    page = re.sub(r"\n *<script[^<>]*></script>", "", page)
    head = (
        f'    <meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"    <style>{style}</style>\n  </head>"
    )
    foot = (
        f'    <script type="application/json" id="lamina-data">{data}</script>\n'
        f'    <script type="module">{script}</script>\n  </body>'
    )
    return page.replace("  </head>", head, 1).replace("  </body>", foot, 1)


def _collect(inspector: Inspector, session_id: str, redaction: Redaction | None) -> dict[str, Any]:
    """Every answer that the page asks for, by its address.

    The page in the file asks the same addresses as one on a server.
    """
    session_list = show_sessions(inspector)
    summaries = session_list["sessions"]
    if session_id:
        summaries = [summary for summary in summaries if summary["id"] == session_id]
        session_list["sessions"] = summaries
    answers: dict[str, Any] = {"/api/sessions": session_list}
    for summary in summaries:
        answers |= _collect_session(inspector, summary["id"])
    if redaction is None:
        return answers
    answers = {address: redaction.redact_view(answer) for address, answer in answers.items()}
    answers["/api/sessions"]["left_out"] = redaction.describe()
    return answers


def _collect_session(inspector: Inspector, session_id: str) -> dict[str, Any]:
    """Every answer about one session, by its address. The page in the file finds them there.

    Requests share most of their entries, so each entry stands once, in a list of rows. The newest
    requests come first: of a very long session the oldest have no room.
    """
    session = show_session(inspector, session_id)
    answers: dict[str, Any] = {
        f"/api/session/{session_id}": session,
        f"/api/alternatives/{session_id}": show_alternatives(inspector, session_id),
    }
    rows: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    texts: dict[str, Any] = {}
    numbers = [call["number"] for call in session["calls"]]
    numbers_before = [None, *numbers[:-1]]
    entries_left = MOST_ENTRIES
    for before, number in zip(reversed(numbers_before), reversed(numbers), strict=True):
        request = show_request(inspector, session_id, number)
        entries_left -= len(request["entries"])
        if entries_left < 0:
            break
        if not texts:  # this is the last request, which has most of the segments
            for entry in request["entries"][:MOST_SEGMENTS]:
                texts[entry["ref"]] = show_segment(inspector, session_id, number, entry["ref"])
        request["entries"] = [_share_entry(entry, rows, places) for entry in request["entries"]]
        answers[f"/api/request/{session_id}/{number}"] = request
        if before is not None:
            address = f"/api/compare/{session_id}/{before}/{number}"
            with suppress(BadInput):  # the bodies are not kept, so there is nothing to compare
                answers[address] = compare_requests(inspector, session_id, before, number)
    answers[f"/rows/{session_id}"] = rows
    answers[f"/texts/{session_id}"] = texts
    return answers


def _share_entry(entry: dict[str, Any], rows: list[dict[str, Any]], places: dict[str, int]) -> list[Any]:
    """An entry as its number in `rows` and what differs from request to request.

    Each request has all entries of the one before it. Written out, they would take the square of the length
    of the session.
    """
    ref = entry["ref"]
    if ref not in places:
        places[ref] = len(rows)
        rows.append(entry)
    return [places[ref], entry["layer"], entry["form"], entry["tokens"], entry["cache"]]


def _join_scripts() -> str:
    """The modules as one script. Each is a function, so that its own names stay its own."""
    pieces = []
    for file_name in MODULES:
        text = _read(file_name)
        exported_names = [match[2] for match in _EXPORT.finditer(text)]
        text = _EXPORT.sub(r"\1", text)
        text = _IMPORT.sub(r"const \1 = module_\2;", text)
        result = f"return {{ {', '.join(exported_names)} }};"
        pieces.append(f"const module_{file_name[:-3]} = (() => {{\n{text}\n{result}\n}})();")
    return "\n".join(pieces)


def _read(name: str) -> str:
    body = read_static(name)
    if body is None:
        raise FileNotFoundError(name)
    return body.decode()


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def encode_json(value: Any) -> bytes:
    """JSON that any browser reads. A lone surrogate, which UTF-8 cannot hold, is written as an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()


@cache
def read_static(name: str) -> bytes | None:
    """A file of the page. Only names of files that are there can be asked for."""
    for file in (files(__package__) / "static").iterdir():
        if file.name == name and f".{name.rpartition('.')[2]}" in FILE_TYPES:
            return file.read_bytes()
    return None
