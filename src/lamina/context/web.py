"""Pages of the web as a source. Which addresses may be asked, `fetch` decides; what is text, `pages` does.

web("https://example.org/changelog")
"""

from __future__ import annotations

import codecs
import re

import anyio

from lamina.context.port import GatheredSegments, Source, in_thread, named, within
from lamina.core.text.characters import is_blank
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import pdf, url, web_tab
from lamina.workspace.documents import text_in
from lamina.workspace.fetch import DEFAULT, Answer, FetchLimits, fetch
from lamina.workspace.html_text import page

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
"""Encodings of web pages, as Python names them. Of Python's others some are no encodings of text, and some
(idna, punycode) take a time that grows with the square of the size."""

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
_TEXTUAL = re.compile(r"[^a-z](?:json|xml|yaml|javascript)$")
_HTML = frozenset({"text/html", "application/xhtml+xml"})


def web(*addresses: str, limits: FetchLimits = DEFAULT) -> Source:
    """A source of these pages, in order; one that cannot be had is noted."""

    async def find(_: str, room: int | None) -> GatheredSegments:
        found = [GatheredSegments()] * len(addresses)

        async def get(place: int, address: str) -> None:
            found[place] = await _got(address, limits)

        async with anyio.create_task_group() as tasks:
            for place, address in enumerate(addresses):
                tasks.start_soon(get, place, address)
        segments = tuple(segment for each in found for segment in each)
        return within(GatheredSegments(segments, tuple(note for each in found for note in each.notes)), room)

    return named("web", find)


async def _got(address: str, limits: FetchLimits) -> GatheredSegments:
    try:
        return GatheredSegments((await in_thread(_fetched, address, limits),))
    except BadInput as refused:
        return GatheredSegments(notes=(f"{refused.place or address}: left out, {refused.problem}",))


def _fetched(address: str, limits: FetchLimits) -> Segment:
    return made(address, fetch(address, limits))


def made(address: str, answer: Answer) -> Segment:
    """A page as a segment, under the address that was asked for."""
    title = ""
    if answer.kind in _HTML:
        title, text = page(_decoded(answer, _said(answer.body)))
    elif answer.body.startswith(b"%PDF-"):
        return pdf(address, text_in(address, answer.body))
    elif answer.kind.startswith("text/") or _TEXTUAL.search(answer.kind):
        text = _decoded(answer, "")
    else:
        raise BadInput(f"{answer.kind:.100} is no text", place=address, hint="attach it as what it is")
    if is_blank(text):
        raise BadInput("there is no text on it", place=address, hint="it may need a browser")
    return web_tab(address, text, title=title) if title else url(address, text)


def _said(body: bytes) -> str:
    """The encoding that a page names in its first lines."""
    match = _CHARSET.search(body[:2048])
    return match[1].decode("ascii", "ignore") if match else ""


def _decoded(answer: Answer, said: str) -> str:
    encoding = _known_encoding(answer.charset) or _known_encoding(said) or "utf-8"
    return answer.body.decode(encoding, "replace")


def _known_encoding(name: str) -> str:
    """The encoding of this name, if it is one of those that the web uses; else nothing."""
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""
    return known if known in ENCODINGS else ""
