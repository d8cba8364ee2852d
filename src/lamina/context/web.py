"""Pages of the web as a source.

    web("https://example.org/changelog")

`lamina.workspace.fetch` decides which addresses may be fetched, `lamina.workspace.html_text` reads the text.
"""

from __future__ import annotations

import codecs
import re

import anyio

from lamina.context.port import (
    GatheredSegments,
    Source,
    fit_into_room,
    join_gathered,
    name_source,
    run_in_thread,
)
from lamina.core.text.characters import is_blank
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import pdf, url, web_tab
from lamina.workspace.documents import text_in
from lamina.workspace.fetch import DEFAULT, Answer, FetchLimits, fetch
from lamina.workspace.html_text import read_page

__all__ = ["web"]

ENCODINGS = frozenset(
    (
        "ascii utf-8 utf-16 utf-16-le utf-16-be "
        "iso8859-1 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9 "
        "iso8859-10 iso8859-11 iso8859-13 iso8859-14 iso8859-15 iso8859-16 "
        "cp866 cp874 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 "
        "koi8-r koi8-u mac-roman mac-cyrillic "
        "gb2312 gbk gb18030 big5 big5hkscs euc_jp iso2022_jp shift_jis cp932 euc_kr cp949"
    ).split()
)
"""Encodings of web pages, as Python names them. Some of Python's others do not encode text, and some
(idna, punycode) take a time that grows with the square of the size."""

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
"""The encoding that a page names: `utf-8` in `<meta charset="utf-8">`."""

_TEXT_TYPE = re.compile(r"[^a-z](?:json|xml|yaml|javascript)$")
"""Types of text besides `text/…`: `application/json`, `image/svg+xml`."""

_HTML = frozenset({"text/html", "application/xhtml+xml"})


def web(*addresses: str, limits: FetchLimits = DEFAULT) -> Source:
    """A source of these pages, in order. A page that cannot be fetched is noted."""

    async def find(_: str, room: int | None) -> GatheredSegments:
        pages = [GatheredSegments()] * len(addresses)

        async def fetch_page(index: int, address: str) -> None:
            pages[index] = await _fetch_or_note(address, limits)

        async with anyio.create_task_group() as tasks:
            for index, address in enumerate(addresses):
                tasks.start_soon(fetch_page, index, address)
        return fit_into_room(join_gathered(pages), room)

    return name_source("web", find)


async def _fetch_or_note(address: str, limits: FetchLimits) -> GatheredSegments:
    """A page as a segment, or a note that says why it was left out."""
    try:
        return GatheredSegments((await run_in_thread(_fetch_segment, address, limits),))
    except BadInput as error:
        return GatheredSegments(notes=(f"{error.place or address}: left out, {error.problem}",))


def _fetch_segment(address: str, limits: FetchLimits) -> Segment:
    return make_page_segment(address, fetch(address, limits))


def make_page_segment(address: str, answer: Answer) -> Segment:
    """A page as a segment, under the address that was requested.

    A PDF is known by its first bytes, whatever type the server names.
    """
    title = ""
    if answer.kind in _HTML:
        title, text = read_page(_decode(answer, _find_charset(answer.body)))
    elif answer.body.startswith(b"%PDF-"):
        return pdf(address, text_in(address, answer.body))
    elif answer.kind.startswith("text/") or _TEXT_TYPE.search(answer.kind):
        text = _decode(answer, "")
    else:
        raise BadInput(f"{answer.kind:.100} is no text", place=address, hint="attach it as what it is")
    if is_blank(text):
        raise BadInput("there is no text on it", place=address, hint="it may need a browser")
    if title:
        return web_tab(address, text, title=title)
    return url(address, text)


def _find_charset(body: bytes) -> str:
    """The encoding that a page names in its first lines, "" if it names none."""
    match = _CHARSET.search(body[:2048])
    if match is None:
        return ""
    return match[1].decode("ascii", "ignore")


def _decode(answer: Answer, page_charset: str) -> str:
    """The text of an answer. The encoding in its headers counts before the one that the page names."""
    encoding = _find_encoding(answer.charset) or _find_encoding(page_charset) or "utf-8"
    return answer.body.decode(encoding, "replace")


def _find_encoding(name: str) -> str:
    """The encoding of this name, "" if it is not one that the web uses."""
    try:
        encoding = codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""
    if encoding not in ENCODINGS:
        return ""
    return encoding
