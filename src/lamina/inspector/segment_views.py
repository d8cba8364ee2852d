"""Shows one segment of a request as plain JSON values: as sent, in full, how the two differ, and why."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import repeat

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.values import Entry, Form, Image, Part, ToolResult
from lamina.core.wording import describe_segment
from lamina.errors import BadInput
from lamina.inspector.request_views import find_subjects
from lamina.inspector.segment_texts import join_texts
from lamina.inspector.sent_history import FormChange
from lamina.inspector.views import Inspector, Json, read_envelope

LONGEST_TEXT = 400_000
"""Characters of one text that the page gets; the download has all of it."""

LONGEST_DIFFERENCE = 4_000
"""Lines that are compared for the Difference pane."""

LONGEST_IMAGE = 8_000_000
"""Characters of the largest image that is shown."""

_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
"""Images that a browser draws without running anything: no SVG."""


def show_segment(inspector: Inspector, session_id: str, number: int, ref: str) -> Json:
    """One segment of a request: as sent, in full, how the two differ, why, and its form over the session.

    Long texts are clipped. What lamina wrote itself has no other text than the one that is sent.
    """
    opened = inspector.open(session_id)
    envelope = read_envelope(inspector.read(opened, number))
    entry = _find_entry(envelope, ref)
    sent = join_texts(entry.parts)
    original = join_texts(entry.segment.parts)
    if entry.segment.is_own:
        original = sent
    history = inspector.find_history(opened.sent).list_changes(entry.ref, number)
    recall = ""
    if entry.form is not Form.FULL:
        recall = handle(entry.content)
    return {
        "ref": str(entry.ref),
        "key": entry.segment.key or handle(entry.content),
        "what": describe_segment(entry.segment),
        "kind": entry.segment.kind,
        "role": entry.role.value,
        "layer": entry.layer.value,
        "form": entry.form.name,
        "tokens": entry.tokens,
        "why": entry.why,
        "sent": sent[:LONGEST_TEXT],
        "original": original[:LONGEST_TEXT],
        "clipped": max(len(sent), len(original)) > LONGEST_TEXT,
        "difference": list(compare_texts(original, sent)),
        "arrived": history[0].call,
        "history": [msgspec.to_builtins(change) for change in history],
        "explanation": explain_form(entry, history, len(opened.calls)),
        "recall": recall,
        "covers": [str(covered) for covered in entry.segment.covers],
        "images": list(find_images(entry.segment.parts)),
        "path": _path_of(envelope, entry),
    }


def find_images(parts: Sequence[Part]) -> Iterator[str]:
    """Images of a segment as data addresses. One at another address is not loaded, so it is not here.

    Images inside of results count too. A very large one is left out.
    """
    for part in parts:
        match part:
            case ToolResult(content=content):
                yield from find_images(content)
                continue
            case Image(data="", url=url):
                source = url
            case Image(data=data, media_type=media_type):
                source = f"data:{media_type or 'image/png'};base64,{data}"
            case _:
                continue
        if len(source) <= LONGEST_IMAGE and _IMAGE.match(source):
            yield source


def _path_of(envelope: Envelope, entry: Entry) -> str:
    """The file that a call or its result is about, "" if there is none."""
    at = next(at for at, other in enumerate(envelope.entries) if other is entry)
    return find_subjects(envelope.entries).get(at, "")


def _find_entry(envelope: Envelope, ref: str) -> Entry:
    for entry in envelope.entries:
        if str(entry.ref) == ref:
            return entry
    raise BadInput(f"the request has no segment {ref!r}", place="segment", hint="the window map lists them")


def compare_texts(original: str, sent: str) -> Iterator[tuple[str, str]]:
    """Lines of both texts: " " for one that is in both, "-" for one that was left out, "+" for a new one.

    Only the first lines of very long texts are compared.
    """
    if original == sent:
        return
    before = original.split("\n")[:LONGEST_DIFFERENCE]
    after = sent.split("\n")[:LONGEST_DIFFERENCE]
    is_large = len(before) * len(after) > 4_000_000
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=is_large)
    for operation, start, end, new_start, new_end in matcher.get_opcodes():
        if operation == "equal":
            yield from zip(repeat(" "), before[start:end], strict=False)
            continue
        yield from zip(repeat("-"), before[start:end], strict=False)
        yield from zip(repeat("+"), after[new_start:new_end], strict=False)


_FORM_SENTENCES = {
    Form.FULL: "It is sent in full",
    Form.COMPACT: "It is sent shortened",
    Form.STUB: "Only its name and a handle are sent",
    Form.OMITTED: "It is not sent",
}


def explain_form(entry: Entry, history: Sequence[FormChange], requests: int) -> str:
    """Why a segment is sent as it is, in a sentence or two.

    "Only its name and a handle are sent: attachment. It was lowered at request 4 of 9. …"
    """
    sentence = _FORM_SENTENCES[entry.form]
    if entry.why:
        sentence += f": {entry.why}"
    sentence += "."
    if len(history) > 1:
        sentence += f" It was lowered at request {history[-1].call + 1} of {requests:,}."
    if entry.form is not Form.FULL and not entry.segment.is_own:
        sentence += " Pin it to keep it in full, or recall it by its handle."
    return sentence
