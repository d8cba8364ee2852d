"""Shows one request as plain JSON values: what was sent, in its order, what was left out, and the markers."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from lamina.caches import CacheRules
from lamina.caches.breakpoints import number_positions
from lamina.caches.marker_plan import plan_markers
from lamina.caches.stream import StreamBlock
from lamina.core.entries import pair_calls
from lamina.core.envelope import Envelope
from lamina.core.explanation import explain
from lamina.core.values import Entry, Form, Layer, ToolCall, ToolResult
from lamina.dialects import DIALECTS
from lamina.errors import LaminaError
from lamina.inspector.body_views import show_answer
from lamina.inspector.building import find_call
from lamina.inspector.built_values import BuiltCall, BuiltRequest, BuiltSession, scale_layers, turn_of
from lamina.inspector.segment_texts import first_part, join_texts, read_path, write_preview
from lamina.inspector.views import Inspector, Json, show_call
from lamina.replay.message_sizes import MessageSizes

_USUAL_SHARE = 0.25
"""Tokens for each character of a request of which nothing was sent in full."""

SHOWN_FROM_LOG = (
    "lamina cut this session before this request. The entries are those of its log, in full: how much of "
    "each was sent is not kept."
)

RE_READ = 3
"""A file that was read at least so often is listed."""


def show_request(inspector: Inspector, session_id: str, number: int, *, rules: str = "") -> Json:
    """The window map: what was sent, in its order, and beside it what was left out."""
    built = inspector.built(session_id, rules)
    call = find_call(built, number)
    built_request = inspector.builder.build_call(built, number)
    envelope = built_request.envelope
    full_tokens = _estimate_full_sizes(envelope.entries)
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
                "arrived": built.arrivals.get(entry.ref, number),
            }
        )
    if built.is_sent:
        call = _add_entries(call, envelope, manifest.layers)
    _mark_cached(rows, call, manifest.tools + built.unrecorded)
    notes = list(manifest.notes)
    if built_request.note:
        notes.append(built_request.note)
    if not built.is_sent and any(each.cut_number for each in built.calls if each.number <= number):
        notes.append(SHOWN_FROM_LOG)
    return {
        "call": show_call(call),
        "entries": rows,
        "has_reasons": built_request.has_reasons,
        "tools": manifest.tools,
        "unrecorded": built.unrecorded,
        "markers": list(_list_markers(built, call, built_request)),
        "other": manifest.answer + manifest.parameters + manifest.request + manifest.margin,
        "exact": manifest.exact,
        "notes": notes,
        "groups": group_entries(envelope.entries),
        "cut": msgspec.to_builtins(manifest.cut),
        "answer": show_answer(built, number),
    }


def _add_entries(call: BuiltCall, envelope: Envelope, layers: Mapping[Layer, int]) -> BuiltCall:
    """The call with what only its entries tell: how many there are, by layer, and its turn."""
    entries = envelope.entries
    sent_entries = [entry for entry in entries if entry.form is not Form.OMITTED]
    counted = envelope.account.total
    tokens = call.tokens or counted
    share = tokens / counted if counted else 1.0  # lamina's own count may differ from the provider's
    return msgspec.structs.replace(
        call,
        tokens=tokens,
        layers=scale_layers({layer.value: amount for layer, amount in layers.items()}, share),
        entries=len(sent_entries),
        left_out=len(entries) - len(sent_entries),
        turn=turn_of(entries, len(entries)),
    )


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


def _list_markers(built: BuiltSession, call: BuiltCall, built_request: BuiltRequest) -> Iterator[Json]:
    """The cache markers of a request: those that were sent, or those that the simulation has."""
    if built.is_sent:
        return find_sent_markers(built, built_request)
    return find_markers(built, call, built_request)


def find_sent_markers(built: BuiltSession, built_request: BuiltRequest) -> Iterator[Json]:
    """The cache markers that a request was sent with, in tokens from its beginning."""
    dialect = DIALECTS.get(built.dialect)
    if dialect is None or not built_request.request:
        return
    try:
        blocks = dialect.cache.stream(built_request.request).blocks
    except LaminaError:
        return
    # A marker is drawn to the pixel, so bytes are close enough: to count all tokens again takes seconds.
    sized = [msgspec.structs.replace(block, tokens=len(block.data)) for block in blocks]
    positions = _BlockPositions(sized, built.rules, built_request.envelope.account.total)
    for at, block in enumerate(sized):
        if block.marker:
            yield positions.place_marker(at, f"sent with a lifetime of {block.marker}")


def _mark_cached(rows: list[Json], call: BuiltCall, tool_tokens: int) -> None:
    """Say of each row whether the cache held it: what was read stands at the beginning of a request.

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


def find_markers(built: BuiltSession, call: BuiltCall, built_request: BuiltRequest) -> Iterator[Json]:
    """Where cache markers stand under the rules, in tokens from the beginning, and how far back each looks.

    The cost of a session is simulated with these markers. Caches without markers have none.
    """
    rules = built.rules
    if not rules.markers:
        return
    model = built.session.conversation.trace.model
    sizes = MessageSizes(built.counter, built.session.conversation.tools)
    messages = built_request.request["messages"]
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
    positions = _BlockPositions(stream.blocks, rules, built_request.envelope.account.total)
    for place in plan.places:
        yield positions.place_marker(int(place), plan.reasons.get(place, ""))


class _BlockPositions:
    """Where each block of a stream ends, in tokens that are scaled to those of the request."""

    def __init__(self, blocks: Sequence[StreamBlock], rules: CacheRules, tokens: int) -> None:
        self._ends = list(accumulate((block.tokens for block in blocks), initial=0))  # 0, and each end
        self._scale = tokens / max(self._ends[-1], 1)
        self._positions = list(number_positions(blocks, runs=rules.runs))
        self._look_back = rules.look_back

    def place_marker(self, at: int, why: str) -> Json:
        """A marker on one block: where it stands, and how far back the cache is searched from it."""
        first = at
        while first and self._positions[at] - self._positions[first - 1] < self._look_back:
            first -= 1
        return {
            "tokens": round(self._ends[at + 1] * self._scale),
            "looks_back_to": round(self._ends[first] * self._scale),
            "why": why,
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
    for at, entry in enumerate(entries):
        part = first_part(entry.source)
        if isinstance(part, ToolCall):
            subjects[at] = (part.name, read_path(part))
    for call, result in pair_calls(entries):
        if call in subjects:
            subjects[result] = subjects[call]
    return subjects
