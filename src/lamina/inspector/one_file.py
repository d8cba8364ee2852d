"""Writes the inspector as one page with everything in it, to send to a colleague.

The page holds the answers that the server would give for each session as it was recorded. Scripts in it may
run only if they are the inspector's own: the page names them by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from lamina.inspector import views
from lamina.inspector.building import BuildSettings
from lamina.inspector.pages import encode_json, read_static
from lamina.inspector.views import Inspector

MODULES = ("dom.js", "api.js", "colours.js", "strip.js", "map.js", "segment.js", "app.js")
"""The scripts of the page, each after those that it imports from."""

MOST_SEGMENTS = 4_000
"""Segments of one session whose texts are in the page."""

_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./[a-z]+\.js\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_REDACTED = "[redacted]"


def write_page(inspector: Inspector, *, redact: bool = False) -> str:
    """The whole page as text."""
    data = encode_json(_collect(inspector, redact=redact)).decode()
    # "</script>" in a text must not end the element that holds the data.
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    script = _join_scripts()
    style = _read("style.css")
    policy = (
        f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _read("index.html")
    page = re.sub(r"\s*<link[^>]*>", "", page)
    page = re.sub(r"\s*<script[^>]*></script>", "", page)
    head = (
        f'    <meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"    <style>{style}</style>\n  </head>"
    )
    foot = (
        f'    <script type="application/json" id="lamina-data">{data}</script>\n'
        f'    <script type="module">{script}</script>\n  </body>'
    )
    return page.replace("  </head>", head, 1).replace("  </body>", foot, 1)


def _collect(inspector: Inspector, *, redact: bool) -> dict[str, Any]:
    """Every answer that the page asks for, by its address."""
    answers: dict[str, Any] = {"/api/sessions": views.show_sessions(inspector)}
    settings = BuildSettings()
    for summary in inspector.sessions.summaries():
        session = views.show_session(inspector, summary.id, settings)
        answers[f"/api/session/{summary.id}"] = session
        last = len(session["calls"]) - 1
        texts: dict[str, Any] = {}
        for number in range(len(session["calls"])):
            request = views.show_request(inspector, summary.id, number, settings)
            answers[f"/api/request/{summary.id}/{number}"] = request
            if number > 0:
                compared = views.compare_requests(inspector, summary.id, number - 1, number, settings)
                answers[f"/api/compare/{summary.id}/{number - 1}/{number}"] = compared
        for entry in answers[f"/api/request/{summary.id}/{last}"]["entries"][:MOST_SEGMENTS]:
            ref = entry["ref"]
            texts[ref] = views.show_segment(inspector, summary.id, last, ref, settings)
        answers[f"/texts/{summary.id}"] = texts
    if redact:
        return {address: _redact(answer) for address, answer in answers.items()}
    return answers


_TEXT_FIELDS = frozenset(("sent", "original", "text", "first_words", "what", "preview", "sentence", "name"))


def _redact(value: Any) -> Any:
    """The value without what was said: sizes, names of tools and reasons stay."""
    if isinstance(value, dict):
        clean: dict[str, Any] = {}
        for name, inner in value.items():
            if name in _TEXT_FIELDS and isinstance(inner, str):
                clean[name] = _REDACTED
            elif name == "difference":
                clean[name] = []
            else:
                clean[name] = _redact(inner)
        return clean
    if isinstance(value, list | tuple):
        return [_redact(inner) for inner in value]
    return value


def _join_scripts() -> str:
    """The modules as one script: imports go, since everything is in one scope."""
    pieces = []
    for name in MODULES:
        text = _IMPORT.sub("", _read(name))
        pieces.append(_EXPORT.sub("", text))
    return "\n".join(pieces)


def _read(name: str) -> str:
    body = read_static(name)
    if body is None:
        raise FileNotFoundError(name)
    return body.decode()


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
