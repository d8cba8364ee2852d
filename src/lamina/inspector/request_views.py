"""Shows one request as plain JSON values: what was sent, in its order, what was left out, and the markers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from lamina.caches.breakpoints import number_positions
from lamina.core.entries import pair_calls
from lamina.core.explanation import explain
from lamina.core.values import Entry, Form, ToolCall
from lamina.dialects import DIALECTS
from lamina.errors import LaminaError
from lamina.inspector.answers import show_answer
from lamina.inspector.segment_texts import first_part, join_texts, read_path, write_preview
from lamina.inspector.sent_requests import SentRequestBuild
from lamina.inspector.sent_sessions import SentCall, SentSession
from lamina.inspector.views import Inspector, Json, find_call, read_envelope

_USUAL_SHARE = 0.25
"""Tokens for each character of a request of which nothing was sent in full."""


def show_request(inspector: Inspector, session_id: str, number: int) -> Json:
    """The window map: what was sent, in its order, and beside it what was left out."""
    opened = inspector.open(session_id)
    call = find_call(opened, number)
    request = inspector.read(opened, number)
    envelope = read_envelope(request)
    full_tokens = _estimate_full_sizes(envelope.entries)
    manifest = explain(envelope)
    rows: list[Json] = []
    for entry, row in zip(envelope.entries, manifest.rows, strict=True):
        rows.append(
            {
                "ref": str(entry.ref),
                "what": row.what,
                "preview": write_preview(entry.segment),
                "kind": entry.segment.kind,
                "role": entry.role.value,
                "layer": entry.layer.value,
                "form": entry.form.name,
                "tokens": entry.tokens,
                "full_tokens": full_tokens.get(str(entry.ref), entry.tokens),
                "why": row.why,
                "recall": row.recall,
                "own": entry.segment.is_own,
            }
        )
    unrecorded = opened.sent.unrecorded
    _mark_cached(rows, call, manifest.tools + unrecorded)
    notes = list(manifest.notes)
    if request.note:
        notes.append(request.note)
    left_out = sum(entry.form is Form.OMITTED for entry in envelope.entries)
    return {
        "call": msgspec.to_builtins(call),
        "turn": max((entry.turn for entry in envelope.entries[-1:]), default=0) + 1,
        "sent": len(rows) - left_out,
        "left_out": left_out,
        "entries": rows,
        "has_reasons": request.envelope is not None,
        "tools": manifest.tools,
        "unrecorded": unrecorded,
        "markers": list(_find_markers(opened, request)),
        "notes": notes,
        "answer": show_answer(opened, number),
    }


def _estimate_full_sizes(entries: Sequence[Entry]) -> dict[str, int]:
    """Tokens in full of each segment that was shortened or left out, by ref.

    It may be millions of tokens, so they are not counted: they are estimated by the tokens for each character
    of what was sent.
    """
    lowered_entries: list[Entry] = []
    characters = 0
    tokens = 0
    for entry in entries:
        if entry.form is not Form.FULL:
            lowered_entries.append(entry)
            continue
        characters += len(join_texts(entry.parts))
        tokens += entry.tokens
    share = _USUAL_SHARE
    if characters:
        share = tokens / characters
    sizes: dict[str, int] = {}
    for entry in lowered_entries:
        size = round(len(join_texts(entry.segment.parts)) * share)
        sizes[str(entry.ref)] = max(size, entry.tokens)
    return sizes


def _mark_cached(rows: list[Json], call: SentCall, tool_tokens: int) -> None:
    """Say of each row whether the cache held it: what was read stands at the beginning of a request.

    A row of which the cache held only a part counts as not read.
    """
    position = tool_tokens
    for row in rows:
        if row["form"] == Form.OMITTED.name or call.reported is None:
            row["cache"] = ""
            continue
        position += row["tokens"]
        if position <= call.read:
            row["cache"] = "read"
        elif position <= call.read + call.written:
            row["cache"] = "written"
        else:
            row["cache"] = "uncached"


def _find_markers(opened: SentSession, request: SentRequestBuild) -> Iterator[Json]:
    """The cache markers that a request was sent with, in tokens from its beginning.

    `looks_back_to` is how far back the cache is searched from each.
    """
    dialect = DIALECTS.get(opened.sent.dialect)
    if dialect is None or opened.sent.is_log:
        return
    try:
        blocks = dialect.cache.stream(request.request).blocks
    except LaminaError:
        return
    # A marker is drawn to the pixel, so bytes are close enough: to count all tokens again takes seconds.
    ends = list(accumulate((len(block.data) for block in blocks), initial=0))
    scale = read_envelope(request).account.total / max(ends[-1], 1)
    positions = list(number_positions(blocks, runs=opened.rules.runs))
    for at, block in enumerate(blocks):
        if not block.marker:
            continue
        first = at
        while first and positions[at] - positions[first - 1] < opened.rules.look_back:
            first -= 1
        yield {
            "tokens": round(ends[at + 1] * scale),
            "looks_back_to": round(ends[first] * scale),
            "why": f"sent with a lifetime of {block.marker}",
        }


def find_subjects(entries: Sequence[Entry]) -> Mapping[int, str]:
    """The path of each call and of its result, by position.

    A result has no path of its own: it has that of its call.
    """
    subjects: dict[int, str] = {}
    for at, entry in enumerate(entries):
        part = first_part(entry.source)
        if isinstance(part, ToolCall):
            subjects[at] = read_path(part)
    for call, result in pair_calls(entries):
        if call in subjects:
            subjects[result] = subjects[call]
    return subjects
