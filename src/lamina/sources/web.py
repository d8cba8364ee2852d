"""Pages of the web as a source. Which addresses may be asked, `fetch` decides; what is text, `pages` does.

web("https://example.org/changelog")
"""

from __future__ import annotations

import codecs
import re

import anyio

from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import pdf, url, web_tab
from lamina.sources.documents import text_in
from lamina.sources.fetch import DEFAULT, Answer, Limits, fetch
from lamina.sources.pages import page
from lamina.sources.port import Found, Source, in_thread, named, within
from lamina.text.characters import is_blank

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
_HTML = frozenset({"text/html", "application/xhtml+xml"})


def web(*addresses: str, limits: Limits = DEFAULT) -> Source:
    """A source of these pages, in order; one that cannot be had is noted."""

    async def find(_: str, room: int | None) -> Found:
        found = [Found()] * len(addresses)

        async def get(place: int, address: str) -> None:
            found[place] = await _got(address, limits)

        async with anyio.create_task_group() as tasks:
            for place, address in enumerate(addresses):
                tasks.start_soon(get, place, address)
        segments = tuple(segment for each in found for segment in each)
        return within(Found(segments, tuple(note for each in found for note in each.notes)), room)

    return named("web", find)


async def _got(address: str, limits: Limits) -> Found:
    try:
        return Found((made(address, await in_thread(fetch, address, limits)),))
    except BadInput as refused:
        return Found(notes=(f"{refused.place or address}: left out, {refused.problem}",))


def made(address: str, answer: Answer) -> Segment:
    """A page as a segment, under the address that was asked for."""
    if answer.kind in _HTML:
        found = page(_decoded(answer, _said(answer.body)))
        text, title = found.text, found.title
    elif answer.body.startswith(b"%PDF-"):
        return pdf(address, text_in(address, answer.body))
    elif answer.kind.startswith("text/") or re.search(
        r"\b(json|xml|yaml|javascript)$", answer.kind, re.ASCII
    ):
        text, title = _decoded(answer, ""), ""
    else:
        raise BadInput(f"{answer.kind} is no text", place=address, hint="attach it as what it is")
    if is_blank(text):
        raise BadInput("there is no text on it", place=address, hint="it may need a browser")
    return web_tab(address, text, title=title) if title else url(address, text)


def _said(body: bytes) -> str:
    match = _CHARSET.search(body[:2048])
    return match[1].decode("ascii", "ignore") if match else ""


def _decoded(answer: Answer, said: str) -> str:
    name = answer.charset or said or "utf-8"
    try:
        known = codecs.lookup(name)
    except LookupError:
        known = codecs.lookup("utf-8")
    if not getattr(known, "_is_text_encoding", True):  # rot13 and the like are codecs, too
        known = codecs.lookup("utf-8")
    return known.decode(answer.body, "replace")[0]
