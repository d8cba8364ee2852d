"""Answers HTTP requests about sessions: the page, its files, and the JSON twin of every view.

Nothing here depends on a web framework, or decides who may ask: `lamina.gateway.inspection` does both.
Everything shown is text that somebody else wrote. So the page may load nothing but its own files, and scripts
in it never run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from lamina.errors import BadInput, LaminaError
from lamina.inspector.answers import show_body, show_raw_answer
from lamina.inspector.comparisons import compare_requests
from lamina.inspector.one_file import FILE_TYPES, encode_json, read_static, save_session
from lamina.inspector.request_views import show_request
from lamina.inspector.search import search_places
from lamina.inspector.segment_views import show_segment
from lamina.inspector.views import Inspector, show_alternatives, show_session, show_sessions

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

SAFETY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

MOST_DIGITS = 15
"""Digits of a number in an address: more than any count of requests has."""

MOST_SHOWN = 40
"""Characters of a wrong word that its error quotes."""

FIRST_ROWS = 100
"""Sessions in the list, until somebody asks for more."""


class PageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What to send back."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""


def answer_request(inspector: Inspector | None, method: str, path: str, query: str) -> PageAnswer:
    """The answer to one request. Without an inspector, only the files of the page are there."""
    if method not in ("GET", "HEAD"):
        return show_problem(HTTPStatus.METHOD_NOT_ALLOWED, "the inspector only shows things; use GET")
    words = [unquote(word) for word in path.strip("/").split("/")]
    if inspector is None:
        return _answer_file(words)
    values = {name: values[-1] for name, values in parse_qs(query).items()}
    return _answer_view(inspector, words[1:] or [""], values)


View = Callable[[Inspector, list[str], dict[str, str]], Any]

_VIEWS: dict[tuple[str, int], View] = {
    ("sessions", 1): lambda inspector, _, query: show_sessions(inspector, rows=_read_rows(query)),
    ("search", 1): lambda inspector, _, query: search_places(inspector, query.get("text", "")),
    ("state", 1): lambda inspector, _, __: {"state": inspector.sessions.state()},
    ("session", 2): lambda inspector, words, _: show_session(inspector, words[1]),
    ("request", 3): lambda inspector, words, _: show_request(inspector, words[1], _read_number(words[2])),
    ("segment", 4): lambda inspector, words, _: show_segment(
        inspector, words[1], _read_number(words[2]), words[3]
    ),
    ("body", 3): lambda inspector, words, _: show_body(inspector, words[1], _read_number(words[2])),
    ("answer", 3): lambda inspector, words, _: show_raw_answer(inspector, words[1], _read_number(words[2])),
    ("compare", 4): lambda inspector, words, _: compare_requests(
        inspector, words[1], _read_number(words[2]), _read_number(words[3])
    ),
    ("alternatives", 2): lambda inspector, words, _: show_alternatives(inspector, words[1]),
    ("save", 2): lambda inspector, words, query: save_session(
        inspector, words[1], is_redacted=bool(query.get("redact"))
    ),
}
"""Each view under /api: the first word of its path and the number of words."""


def _read_rows(query: Mapping[str, str]) -> int:
    """How many sessions the list shows: the page asks for more when somebody wants to see them."""
    word = query.get("rows", "")
    if not word:
        return FIRST_ROWS
    return _read_number(word, "rows", "give the number of sessions to list")


def _read_number(word: str, name: str = "request", hint: str = "give the number of a request, from 0") -> int:
    """The number that a word of an address means. Any other word raises BadInput.

    `isdigit` alone is true of "²" and of digits of other scripts.
    """
    is_number = word.isascii() and word.isdigit()
    # Python refuses to read a number of more than 4,300 digits, and one of 400 is too large for a float.
    if not is_number or len(word) > MOST_DIGITS:
        raise BadInput(f"{name} is {word[:MOST_SHOWN]!r}", place=name, hint=hint)
    return int(word)


def _answer_view(inspector: Inspector, words: list[str], query: dict[str, str]) -> PageAnswer:
    """A view as JSON, or a whole page to save."""
    view = _VIEWS.get((words[0], len(words)))
    if view is None:
        return show_problem(HTTPStatus.NOT_FOUND, "there is no such view")
    try:
        value = view(inspector, words, query)
    except BadInput as error:
        return show_problem(HTTPStatus.BAD_REQUEST, str(error))
    except LaminaError as error:
        return show_problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    if isinstance(value, str):
        name = f'attachment; filename="session-{words[1][:40]}.html"'
        headers = {**SAFETY_HEADERS, "Content-Type": FILE_TYPES[".html"], "Content-Disposition": name}
        return PageAnswer(headers=headers, body=value.encode("utf-8", "backslashreplace"))
    headers = {**SAFETY_HEADERS, "Content-Type": "application/json; charset=utf-8"}
    return PageAnswer(headers=headers, body=encode_json(value))


def _answer_file(words: list[str]) -> PageAnswer:
    """A file of the page. Views have their addresses behind its #, so there is no other page.

    The files stand at the root and below `static`.
    """
    name = words[-1]
    if words == [""]:
        name = "index.html"
    body = read_static(name)
    if body is None or words[0] not in ("", "static"):
        return show_problem(HTTPStatus.NOT_FOUND, "there is no such file")
    suffix = f".{name.rpartition('.')[2]}"
    return PageAnswer(headers={**SAFETY_HEADERS, "Content-Type": FILE_TYPES[suffix]}, body=body)


def show_problem(status: int, message: str) -> PageAnswer:
    """An error, in the words of whoever found it."""
    headers = {**SAFETY_HEADERS, "Content-Type": "application/json; charset=utf-8"}
    return PageAnswer(status=status, headers=headers, body=encode_json({"error": message}))
