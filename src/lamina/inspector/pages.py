"""Answers HTTP requests about sessions: the page, its files, and the JSON twin of every view.

Nothing here depends on a web framework. `answer_request` takes what any server knows of a request and returns
what to send, so that `lamina inspect` needs nothing installed and the gateway can mount the same pages.

Everything shown is text that somebody else wrote. So the page may load nothing but its own files, scripts in
it never run, and requests from other sites or under another host name are refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import time
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from lamina.errors import BadInput, LaminaError
from lamina.inspector import page_cookies
from lamina.inspector.alternatives import show_alternative, show_choices
from lamina.inspector.body_views import show_body, show_raw_answer
from lamina.inspector.built_values import parse_whole, read_whole
from lamina.inspector.comparisons import compare_requests
from lamina.inspector.exports import export_request, save_session
from lamina.inspector.one_file import FILE_TYPES, Download, encode_json, read_static
from lamina.inspector.request_views import show_request
from lamina.inspector.search import read_filters, search_places
from lamina.inspector.segment_views import show_segment, show_text
from lamina.inspector.views import Inspector, Json, show_session, show_sessions, show_tools
from lamina.inspector.visibility import find_visible
from lamina.replay.across import SessionFigures, summarise_across
from lamina.replay.headline import NOT_NAMED

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

LINES_TYPE = "application/x-ndjson"
"""What the page itself asks for: a long answer in lines. Anyone else gets one JSON object."""

JOB_HEADER = "x-lamina-job"
"""The name of an answer that the page may have to wait for: `/api/progress/NAME` says how far it is."""

LINE_ITEMS = 250
"""Items of a long list in one line."""

FIRST_ROWS = 100
"""Sessions in the list, until somebody asks for more."""

SECONDS_BETWEEN_LOOKS = 1.0
"""How often a live page is told whether a file has changed."""

_SECONDS_OF_DAY = 86_400


class PageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What to send back."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Who may look. `hosts` are the names under which the server may be addressed, with their port.

    `cookie_key` signs the cookie that stands for the token, and `folder` is where the pages are.
    """

    hosts: frozenset[str]
    token: str = ""
    cookie_key: bytes = b""
    folder: str = "/"


def answer_request(
    inspector: Inspector, method: str, target: str, headers: Mapping[str, str], access: Access
) -> PageAnswer:
    """The answer to one request. `headers` have names in lower case.

    After a token in the address the browser gets a cookie, and is sent to the address without the token.
    """
    if method not in ("GET", "HEAD"):
        return _problem(HTTPStatus.METHOD_NOT_ALLOWED, "the inspector only shows things; use GET")
    refusal = refuse_stranger(target, headers, access)
    if refusal is not None:
        return refusal
    address = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(address.query).items()}
    if access.token and query.get("token"):
        return _open_page(address.path, access)
    words = [unquote(word) for word in address.path.strip("/").split("/")]
    if words[0] == "api":
        in_lines = LINES_TYPE in headers.get("accept", "")
        with inspector.progress.job(headers.get(JOB_HEADER, "")):
            return _answer_api(inspector, words[1:] or [""], query, in_lines=in_lines)
    return _answer_file(words)


def refuse_stranger(target: str, headers: Mapping[str, str], access: Access) -> PageAnswer | None:
    """The refusal of a request that another site sent, or that has no token; None if it may be answered."""
    # DNS rebinding: another site points its own name at this machine, so the Host header is not one of ours.
    if headers.get("host", "").lower() not in access.hosts:
        return _problem(HTTPStatus.MISDIRECTED_REQUEST, "this server does not answer under that host name")
    # A page of another site can make a browser send requests here. The browser says so in `Sec-Fetch-Site`.
    is_of_other_site = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if is_of_other_site and not is_followed_link(urlsplit(target).path, headers):
        return _problem(HTTPStatus.FORBIDDEN, "requests from other sites are refused")
    if not access.token:
        return None
    query = parse_qs(urlsplit(target).query)
    offers = [query.get("token", [""])[-1], _bearer(headers)]
    # Comparing takes the same time, wherever two tokens differ.
    if any(hmac.compare_digest(offer.encode(), access.token.encode()) for offer in offers):
        return None
    cookie = page_cookies.read_cookie(headers.get("cookie", ""))
    token_digest = page_cookies.digest_token(access.token)
    if page_cookies.is_valid(cookie, access.cookie_key, token_digest, now=time()):
        return None
    return _problem(HTTPStatus.UNAUTHORIZED, "open the address with ?token=… that `lamina inspect` printed")


def is_followed_link(path: str, headers: Mapping[str, str]) -> bool:
    """Whether somebody followed a link to the page: in a chat message, say.

    Only the page itself is opened so, which holds nothing of any session. It asks for that itself, and then
    the browser says that the page asks.
    """
    if path not in ("", "/"):
        return False
    purpose = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return purpose == ("navigate", "document")


def write_event(state: str, last_state: str) -> bytes:
    """What a live page is sent: the new state, or a remark that keeps the connection open."""
    if state == last_state:
        return b": still here\n\n"
    return f"data: {state}\n\n".encode()


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return ""
    return token.strip()


def _open_page(path: str, access: Access) -> PageAnswer:
    """Send the browser to the address without the token, with a cookie that stands for it."""
    value = page_cookies.write_cookie(access.cookie_key, page_cookies.digest_token(access.token), now=time())
    cookie = page_cookies.write_header(value, path=access.folder)
    headers = {**SAFETY_HEADERS, "Set-Cookie": cookie, "Location": path or "/"}
    return PageAnswer(status=HTTPStatus.SEE_OTHER, headers=headers)


View = Callable[[Inspector, list[str], dict[str, str]], Any]

_VIEWS: dict[tuple[str, int], View] = {
    ("sessions", 1): lambda inspector, _, query: show_sessions(inspector, rows=_read_rows(query)),
    ("search", 1): lambda inspector, _, query: search_places(
        inspector, query.get("text", ""), read_filters(query)
    ),
    ("state", 1): lambda inspector, _, __: {"state": inspector.sessions.state()},
    ("progress", 2): lambda inspector, words, _: _show_progress(inspector, words[1]),
    ("session", 2): lambda inspector, words, query: show_session(
        inspector, words[1], rules=query.get("rules", "")
    ),
    ("tools", 2): lambda inspector, words, _: show_tools(inspector, words[1]),
    ("request", 3): lambda inspector, words, query: show_request(
        inspector, words[1], _read_number(words[2]), rules=query.get("rules", "")
    ),
    ("segment", 4): lambda inspector, words, _: show_segment(
        inspector, words[1], _read_number(words[2]), words[3]
    ),
    ("text", 4): lambda inspector, words, _: show_text(inspector, words[1], _read_number(words[2]), words[3]),
    ("body", 3): lambda inspector, words, _: show_body(inspector, words[1], _read_number(words[2])),
    ("answer", 3): lambda inspector, words, _: show_raw_answer(inspector, words[1], _read_number(words[2])),
    ("compare", 4): lambda inspector, words, query: compare_requests(
        inspector, words[1], _read_number(words[2]), _read_number(words[3]), rules=query.get("rules", "")
    ),
    ("visible", 2): lambda inspector, words, query: find_visible(inspector, words[1], query.get("text", "")),
    ("export", 3): lambda inspector, words, _: export_request(inspector, words[1], _read_number(words[2])),
    ("alternatives", 2): lambda inspector, words, _: show_choices(inspector, words[1]),
    ("alternative", 2): lambda inspector, words, query: show_alternative(inspector, words[1], query),
    ("across", 1): lambda inspector, _, query: show_across(inspector, query),
    ("save", 3): lambda inspector, words, query: save_session(inspector, words[1], words[2], query),
}
"""Each view under /api: the first word of its path and the number of words."""


def _read_number(word: str) -> int:
    return parse_whole(word, "request", hint="give the number of a request, from 0")


def _answer_api(
    inspector: Inspector, words: list[str], query: dict[str, str], *, in_lines: bool
) -> PageAnswer:
    """A view as JSON, or as lines of JSON if the page asks for these. An export is a file to save."""
    view = _VIEWS.get((words[0], len(words)))
    if view is None:
        return _problem(HTTPStatus.NOT_FOUND, "there is no such view")
    try:
        value = view(inspector, words, query)
    except BadInput as error:
        return _problem(HTTPStatus.BAD_REQUEST, str(error))
    except LaminaError as error:
        return _problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    if isinstance(value, Download):
        disposition = f'attachment; filename="{value.name}"'
        headers = {**SAFETY_HEADERS, "Content-Type": value.media_type, "Content-Disposition": disposition}
        return PageAnswer(headers=headers, body=value.body)
    headers = {**SAFETY_HEADERS, "Content-Type": "application/json; charset=utf-8"}
    if words[0] == "export":
        headers["Content-Disposition"] = f'attachment; filename="{words[0]}-{words[1][:40]}.json"'
    elif in_lines:
        return PageAnswer(headers={**headers, "Content-Type": LINES_TYPE}, body=encode_lines(value))
    return PageAnswer(headers=headers, body=encode_json(value))


def encode_lines(value: dict[str, Any]) -> bytes:
    """The same value in lines that a page can parse one at a time, so that it answers its reader in between.

    The first line is the value with its long lists empty. Each line after it has the next items of one:
    `{"calls": [], "rules": "…"}`, then `{"list": "calls", "items": [ … ]}`.
    """
    first: dict[str, Any] = {}
    pieces: list[dict[str, Any]] = []
    for name, items in value.items():
        if not isinstance(items, list) or len(items) <= LINE_ITEMS:
            first[name] = items
            continue
        first[name] = []
        starts = range(0, len(items), LINE_ITEMS)
        pieces += [{"list": name, "items": items[start : start + LINE_ITEMS]} for start in starts]
    return b"\n".join(map(encode_json, [first, *pieces]))


def _read_rows(query: Mapping[str, str]) -> int:
    """How many sessions the list shows: the page asks for more when somebody wants to see them."""
    rows = read_whole(query, "rows", hint="give the number of sessions to list")
    return FIRST_ROWS if rows is None else rows


def _show_progress(inspector: Inspector, name: str) -> dict[str, Any]:
    job = inspector.progress.look(name)
    return {"what": job.what, "done": job.done, "total": job.total, "seconds_left": job.seconds_left}


def _answer_file(words: list[str]) -> PageAnswer:
    """A file of the page. Views have their addresses behind its #, so there is no other page.

    The files stand at the root and below `static`.
    """
    name = words[-1]
    if words == [""]:
        name = "index.html"
    body = read_static(name)
    if body is None or words[0] not in ("", "static"):
        return _problem(HTTPStatus.NOT_FOUND, "there is no such file")
    suffix = f".{name.rpartition('.')[2]}"
    return PageAnswer(headers={**SAFETY_HEADERS, "Content-Type": FILE_TYPES[suffix]}, body=body)


def _problem(status: int, message: str) -> PageAnswer:
    headers = {**SAFETY_HEADERS, "Content-Type": "application/json; charset=utf-8"}
    return PageAnswer(status=status, headers=headers, body=encode_json({"error": message}))


def show_across(inspector: Inspector, query: Mapping[str, str]) -> Json:
    """All sessions, or those of the last `days`, of a client, a project, a model or a user."""
    figures = inspector.figures.collect(inspector.sessions)
    since = _read_since(query)
    chosen = [each for each in figures if _is_chosen(each, query, since)]
    answer: Json = msgspec.to_builtins(summarise_across(chosen))
    answer["of"] = len(figures)
    answer["problems"] = len(inspector.sessions.problems())
    return answer


def _read_since(query: Mapping[str, str]) -> float | None:
    days = read_whole(query, "days", hint="give a whole number of days")
    if days is None:
        return None
    return time() - days * _SECONDS_OF_DAY


def _is_chosen(figures: SessionFigures, query: Mapping[str, str], since: float | None) -> bool:
    """Whether a session began in the days that are asked for, and is of the client that is asked for, say."""
    reported = figures.reported
    if since is not None and (reported.began is None or reported.began < since):
        return False
    names = {
        "client": reported.client or reported.source,
        "project": reported.project,
        "model": reported.model,
        "user": reported.user,
    }
    for filter_name, name in names.items():
        word = query.get(filter_name, "")
        if word and word != (name or NOT_NAMED):
            return False
    return True
