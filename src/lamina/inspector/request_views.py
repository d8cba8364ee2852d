"""One request as plain JSON values: what was sent, in its order, what was left out, and the cache markers."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from lamina.caches.breakpoints import number_positions
from lamina.caches.marker_plan import plan_markers
from lamina.core.entries import pair_calls
from lamina.core.envelope import Envelope
from lamina.core.explanation import explain
from lamina.core.text.subjects import read_subject
from lamina.core.values import Entry, Form, ToolCall, ToolResult
from lamina.inspector.building import find_call, render_request
from lamina.inspector.built_values import BuiltCall, BuiltSession
from lamina.inspector.segment_texts import first_part, write_preview
from lamina.inspector.settings import BuildSettings
from lamina.inspector.views import Inspector, Json, find_limits, show_call
from lamina.replay.message_sizes import MessageSizes

RE_READ = 3
"""A file that was read at least so often is listed."""


def show_request(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """The window map: what was sent, in its order, and beside it what was left out."""
    built = inspector.built(session_id, settings)
    call = find_call(built, number)
    if call.error:
        return {
            "call": show_call(call),
            "limits": find_limits(built),
            "entries": [],
            "groups": {},
            "markers": [],
        }
    envelope = inspector.builder.build_call(built, number)
    full_tokens = _full_sizes(inspector, built, number)
    manifest = explain(envelope)
    rows: list[Json] = []
    for entry, row in zip(envelope.entries, manifest.rows, strict=True):
        rows.append(
            {
                "ref": str(entry.ref),
                "key": row.key,
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
                "turn": entry.turn,
                "step": entry.step,
                "own": entry.segment.is_own,
                "pinned": entry.segment.pinned,
                "arrived": built.arrivals.get(entry.ref, number),
            }
        )
    _mark_cached(rows, call, manifest.tools + built.unrecorded)
    return {
        "call": show_call(call),
        "limits": find_limits(built),
        "entries": rows,
        "tools": manifest.tools,
        "unrecorded": built.unrecorded,
        "markers": list(find_markers(built, call, envelope)),
        "other": manifest.answer + manifest.parameters + manifest.request + manifest.margin,
        "exact": manifest.exact,
        "notes": list(manifest.notes),
        "groups": group_entries(envelope.entries),
        "cut": msgspec.to_builtins(manifest.cut),
    }


def _full_sizes(inspector: Inspector, built: BuiltSession, number: int) -> dict[str, int]:
    """Tokens of each segment in full, by ref."""
    if built.budget is None:
        return {}
    return {
        str(entry.ref): entry.tokens
        for entry in inspector.builder.build_call(built, number, in_full=True).entries
    }


def _mark_cached(rows: list[Json], call: BuiltCall, tool_tokens: int) -> None:
    """Says of each row whether the cache held it: what was read stands at the beginning of a request.

    A row of which the cache held only a part counts as not read.
    """
    position = tool_tokens
    for row in rows:
        if row["form"] == Form.OMITTED.name:
            row["cache"] = ""
            continue
        position += row["tokens"]
        if position <= call.read:
            row["cache"] = "read"
        elif position <= call.read + call.written:
            row["cache"] = "written"
        else:
            row["cache"] = "uncached"


def find_markers(built: BuiltSession, call: BuiltCall, envelope: Envelope) -> Iterator[Json]:
    """Where cache markers stand under the rules, in tokens from the beginning, and how far back each looks.

    The cost of a session is simulated with these markers. Caches without markers have none.
    """
    rules = built.rules
    if not rules.markers:
        return
    model = built.session.conversation.trace.model
    sizes = MessageSizes(built.counter, built.session.conversation.tools)
    messages = render_request(built, envelope)["messages"]
    stream = sizes.stream(messages, model)
    numbered = [
        msgspec.structs.replace(block, place=str(at), markable=True) for at, block in enumerate(stream.blocks)
    ]
    stream = msgspec.structs.replace(stream, blocks=tuple(numbered))
    last_block = None
    if call.continues and call.number:
        before = built.session.conversation.calls[call.number - 1]
        last_block = len(sizes.stream(messages[: before.end], model).blocks) - 1
    plan = plan_markers(stream, rules, last=last_block)
    ends = list(accumulate(block.tokens for block in stream.blocks))
    scale = envelope.account.total / max(ends[-1], 1)
    positions = list(number_positions(stream.blocks, runs=rules.runs))
    for place in plan.places:
        at = int(place)
        first = at
        while first and positions[at] - positions[first - 1] < rules.look_back:
            first -= 1
        start = ends[first - 1] if first else 0
        yield {
            "tokens": round(ends[at] * scale),
            "looks_back_to": round(start * scale),
            "why": plan.reasons.get(place, ""),
        }


def group_entries(entries: Sequence[Entry]) -> Json:
    """Sums by kind, layer, author, tool and path; and files that were read again and again.

    Each sum has the largest hundred. What is omitted takes no tokens, but its file was read all the same.
    """
    sums: dict[str, Tally[str]] = {group: Tally() for group in ("kind", "layer", "author", "tool", "path")}
    reads: Tally[str] = Tally()
    subjects = find_subjects(entries)
    for at, entry in enumerate(entries):
        tool, path = subjects.get(at, ("", ""))
        if path and isinstance(first_part(entry.segment), ToolResult):
            reads[path] += 1
        if entry.form is Form.OMITTED:
            continue
        names = (entry.segment.kind, entry.layer.value, entry.role.value, tool, path)
        for tally, name in zip(sums.values(), names, strict=True):
            tally[name] += entry.tokens
    sums["tool"].pop("", None)  # what is no call has no tool, and often no path
    sums["path"].pop("", None)
    groups: Json = {group: dict(tally.most_common(100)) for group, tally in sums.items()}
    groups["read_again"] = {path: count for path, count in reads.most_common(100) if count >= RE_READ}
    return groups


def find_subjects(entries: Sequence[Entry]) -> dict[int, tuple[str, str]]:
    """The tool and the path of each call and of its result, by position.

    A result has no path of its own: it has that of its call.
    """
    subjects: dict[int, tuple[str, str]] = {}
    sources = [entry.source for entry in entries]
    results = {result: call for call, result in pair_calls(entries)}
    for at, segment in enumerate(sources):
        part = first_part(segment)
        if isinstance(part, ToolCall):
            subjects[at] = (part.name, str(getattr(read_subject(part), "resource", "")))
    for result, call in results.items():
        if call in subjects:
            subjects[result] = subjects[call]
    return subjects
