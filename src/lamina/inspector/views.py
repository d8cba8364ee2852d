"""What the page shows, as plain JSON values: one function for each view.

Every figure comes from the functions behind `explain`, `diff` and the lab, so that the page, the command line
and a program agree.
"""

from __future__ import annotations

import difflib
import re
import shlex
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import msgspec

from lamina.caches import all_rules
from lamina.caches.breakpoints import number_positions
from lamina.caches.marker_plan import plan_markers
from lamina.core.entries import pair_calls
from lamina.core.envelope import Envelope
from lamina.core.explanation import explain
from lamina.core.hashing import handle
from lamina.core.text.subjects import read_subject
from lamina.core.values import Entry, Form, Image, Layer, Part, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import describe_segment, text_of
from lamina.diagnose.differences import diff
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.inspector.building import (
    AS_RECORDED,
    LAMINA,
    POLICIES,
    BuildSettings,
    BuiltCall,
    BuiltSession,
    SessionBuilder,
    build_session,
    find_call,
    render_request,
    usages_by_call,
)
from lamina.inspector.sessions import RecordedSession, Sessions
from lamina.models.facts import AS_OF
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import CHAT

Json = dict[str, Any]

LONGEST_TEXT = 400_000
"""Characters of one text that the page gets; the download has all of it."""

LONGEST_PREVIEW = 100
"""Characters of a segment that the list of entries shows."""

LONGEST_DIFFERENCE = 4_000
"""Lines that are compared for the Difference pane."""

MOST_MATCHES = 200
"""Segments that a search lists."""

MOST_LANES = 40
"""Sub-agents that are drawn under their parent."""

LONGEST_IMAGE = 8_000_000
"""Characters of the largest image that is shown."""

_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
"""Images that a browser draws without running anything: no SVG."""

RE_READ = 3
"""A file that was read at least so often is listed."""


class Inspector:
    """Answers what the page asks. It holds the sessions and what was built of them."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.builder = SessionBuilder()

    def built(self, session_id: str, settings: BuildSettings) -> BuiltSession:
        return self.builder.build(self.sessions.get(session_id), settings)


def show_sessions(inspector: Inspector, search: str = "") -> Json:
    """The list of sessions, or those in which a text occurs."""
    summaries = inspector.sessions.summaries()
    words = search.strip().lower()
    if words:
        summaries = [
            summary for summary in summaries if _occurs_in(inspector.sessions.get(summary.id), words)
        ]
    return {
        "sessions": [msgspec.to_builtins(summary) for summary in summaries],
        "problems": [msgspec.to_builtins(problem) for problem in inspector.sessions.problems()],
        "rules": sorted(all_rules()),
        "policies": POLICIES,
        "prices_as_of": AS_OF,
        "layers": [layer.value for layer in Layer],
    }


def _occurs_in(session: RecordedSession, words: str) -> bool:
    summary = session.summary
    if any(words in text.lower() for text in (summary.first_words, summary.name, summary.model)):
        return True
    return any(words in str(message).lower() for message in session.conversation.messages)


def show_session(inspector: Inspector, session_id: str, settings: BuildSettings) -> Json:
    """The strip: one bar for each request, with its layers, its cache and its cost."""
    built = inspector.built(session_id, settings)
    return {
        "session": msgspec.to_builtins(built.session.summary),
        "settings": msgspec.to_builtins(settings),
        "rules": built.rules.name,
        "all_rules": sorted(all_rules()),
        "window": built.session.window if built.budget is None else built.budget.window,
        "limits": _limits(built),
        "calls": [show_call(call) for call in built.calls],
        "recorded_calls": len(built.session.conversation.calls),
        "skipped": built.skipped,
        "totals": sum_calls(built.calls),
        "tools": list(find_tool_use(built)),
        "compacted": find_compacted_calls(built.session),
        "head_recorded": built.session.has_head,
        "unrecorded": built.unrecorded,
        "lanes": [show_lane(child) for child in inspector.sessions.children(built.session)[:MOST_LANES]],
    }


def show_lane(session: RecordedSession) -> Json:
    """The requests of a sub-agent: when each was sent, and how large it was where that is recorded."""
    usages = usages_by_call(session)
    calls: list[Json] = []
    for number, call in enumerate(session.conversation.calls):
        usage = usages[number]
        calls.append({"number": number, "at": call.at, "tokens": usage.total if usage else None})
    return {
        "id": session.summary.id,
        "name": session.summary.name,
        "first_words": session.summary.first_words,
        "calls": calls,
    }


def find_compacted_calls(session: RecordedSession) -> list[int]:
    """The calls before which the client itself replaced what stood there."""
    starts = sorted(session.conversation.trace.used)
    calls = {bisect_left(starts, place) for place in session.conversation.trace.compacted}
    return sorted(number for number in calls if number < len(session.conversation.calls))


def show_call(call: BuiltCall) -> Json:
    """One bar of the strip."""
    return {
        "number": call.number,
        "at": call.at,
        "idle": call.idle,
        "tokens": call.tokens,
        "layers": dict(call.layers),
        "entries": call.entries,
        "left_out": call.left_out,
        "cut": call.cut,
        "cut_lowered": call.cut_lowered,
        "continues": call.continues,
        "error": call.error,
        "read": call.read,
        "written": call.written,
        "uncached": call.uncached,
        "output": call.output,
        "dollars": call.dollars,
        "equivalents": call.equivalents,
        "simulated": call.simulated,
        "reported": call.reported,
        "turn": call.turn,
        "miss": call.miss,
    }


def sum_calls(calls: Sequence[BuiltCall]) -> Json:
    """The sums of a session. Money is None if the price of the model is not known."""
    priced = [call.dollars for call in calls if not call.error]
    dollars: float | None = None
    if priced and all(price is not None for price in priced):
        dollars = sum(price for price in priced if price is not None)
    return {
        "calls": len(calls),
        "sent": sum(call.tokens for call in calls),
        "read": sum(call.read for call in calls),
        "written": sum(call.written for call in calls),
        "uncached": sum(call.uncached for call in calls),
        "output": sum(call.output for call in calls),
        "dollars": dollars,
        "equivalents": sum(call.equivalents for call in calls),
        "cuts": sum(bool(call.cut) for call in calls),
        "broken": sum(not call.continues for call in calls),
        "failed": sum(bool(call.error) for call in calls),
        "largest": max((call.tokens for call in calls), default=0),
    }


def _limits(built: BuiltSession) -> Json:
    """Room, trigger and target in tokens, as far as the settings have them."""
    budget = built.budget
    if budget is None:
        return {"window": built.session.window, "room": None, "trigger": None, "target": None}
    room = next((call.room for call in built.calls if call.room is not None), None)
    trigger = None
    target = None
    if room is not None:
        trigger = int(room * budget.trigger)
        if budget.target is not None:
            target = int(room * budget.target)
    return {"window": budget.window, "room": room, "trigger": trigger, "target": target}


def find_tool_use(built: BuiltSession) -> Iterator[Json]:
    """Each tool with the size of its definition, and how often it was called; the unused ones first."""
    calls: Tally[str] = Tally()
    for message in built.session.conversation.messages:
        for call in message.get("tool_calls") or ():
            calls[str(call.get("function", {}).get("name", ""))] += 1
    definitions: dict[str, int] = {}
    for tool in built.session.conversation.tools:
        name = str(tool.get("function", {}).get("name") or tool.get("name") or "")
        definitions[name] = built.counter.count(msgspec.json.encode(tool).decode())
    names = sorted({*definitions, *calls}, key=lambda name: (calls[name], -definitions.get(name, 0), name))
    for name in names:
        yield {"name": name, "tokens": definitions.get(name), "calls": calls[name]}


# One request.


def show_request(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """The window map: what was sent, in its order, and beside it what was left out."""
    built = inspector.built(session_id, settings)
    call = find_call(built, number)
    if call.error:
        return {"call": show_call(call), "limits": _limits(built), "entries": [], "groups": {}, "markers": []}
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
                "preview": _preview(entry.segment),
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
                "own": entry.segment.origin == "lamina",
                "pinned": entry.segment.pinned,
                "arrived": built.arrivals.get(entry.ref, number),
            }
        )
    _mark_cached(rows, call, manifest.tools + built.unrecorded)
    return {
        "call": show_call(call),
        "limits": _limits(built),
        "entries": rows,
        "tools": manifest.tools,
        "unrecorded": built.unrecorded,
        "markers": list(find_markers(built, call, envelope)),
        "other": manifest.answer + manifest.parameters + manifest.request + manifest.margin,
        "exact": manifest.exact,
        "notes": list(manifest.notes),
        "groups": group_entries(envelope.entries),
        "cut": msgspec.to_builtins(manifest.cut) if manifest.cut is not None else None,
    }


def _preview(segment: Segment) -> str:
    """The beginning of a segment on one line. A call shows its arguments: its name stands before them."""
    first = _first_part(segment)
    text = first.arguments if isinstance(first, ToolCall) else _text_of_parts(segment.parts)
    text = text[: 2 * LONGEST_PREVIEW]
    return " ".join(text.split())[:LONGEST_PREVIEW]


def _full_sizes(inspector: Inspector, built: BuiltSession, number: int) -> dict[str, int]:
    """Tokens of each segment in full, by ref."""
    if built.budget is None:
        return {}
    return {
        str(entry.ref): entry.tokens
        for entry in inspector.builder.build_call(built, number, in_full=True).entries
    }


def _mark_cached(rows: list[Json], call: BuiltCall, tool_tokens: int) -> None:
    """Says of each row whether the cache held it: what was read stands at the beginning of a request."""
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
    """Sums by kind, layer, author, tool and path; and files that were read again and again."""
    sums: dict[str, Tally[str]] = {name: Tally() for name in ("kind", "layer", "author", "tool", "path")}
    reads: Tally[str] = Tally()
    subjects = _subjects_of(entries)
    for at, entry in enumerate(entries):
        tool, path = subjects.get(at, ("", ""))
        if path and isinstance(_first_part(entry.segment), ToolResult):
            reads[path] += 1
        if entry.form is Form.OMITTED:
            continue
        sums["kind"][entry.segment.kind] += entry.tokens
        sums["layer"][entry.layer.value] += entry.tokens
        sums["author"][entry.role.value] += entry.tokens
        if tool:
            sums["tool"][tool] += entry.tokens
        if path:
            sums["path"][path] += entry.tokens
    groups: Json = {name: dict(tally.most_common(100)) for name, tally in sums.items()}
    groups["read_again"] = {path: count for path, count in reads.most_common(100) if count >= RE_READ}
    return groups


def _subjects_of(entries: Sequence[Entry]) -> dict[int, tuple[str, str]]:
    """The tool and the path of each call and of its result, by position."""
    subjects: dict[int, tuple[str, str]] = {}
    sources = [entry.source for entry in entries]
    results = {result: call for call, result in pair_calls(entries)}
    for at, segment in enumerate(sources):
        part = _first_part(segment)
        if isinstance(part, ToolCall):
            subject = read_subject(part)
            path = ""
            if subject is not None:
                path = str(getattr(subject, "resource", ""))
            subjects[at] = (part.name, path)
    for result, call in results.items():
        if call in subjects:
            subjects[result] = subjects[call]
    return subjects


def _first_part(segment: Segment) -> Part | None:
    return segment.parts[0] if segment.parts else None


# One segment.


def show_segment(
    inspector: Inspector, session_id: str, number: int, ref: str, settings: BuildSettings
) -> Json:
    """One segment of a request: as sent, in full, how the two differ, why, and its form over the session."""
    built = inspector.built(session_id, settings)
    envelope = inspector.builder.build_call(built, number)
    entry = _find_entry(envelope, ref)
    sent = _text_of_parts(entry.parts)
    original = _text_of_parts(entry.segment.parts)
    if entry.segment.origin == "lamina":
        original = sent
    history = built.history.get(entry.ref, ())
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
        "arrived": built.arrivals.get(entry.ref, number),
        "history": [msgspec.to_builtins(change) for change in history],
        "explanation": explain_form(entry, history, built),
        "recall": handle(entry.content) if entry.form is not Form.FULL else "",
        "covers": [str(covered) for covered in entry.segment.covers],
        "images": list(find_images(entry.segment.parts)),
        "path": _path_of(envelope, entry),
    }


def show_text(inspector: Inspector, session_id: str, number: int, ref: str, settings: BuildSettings) -> Json:
    """A segment as sent and in full, however long it is."""
    entry = _find_entry(inspector.builder.build_call(inspector.built(session_id, settings), number), ref)
    sent = _text_of_parts(entry.parts)
    original = _text_of_parts(entry.segment.parts)
    return {"ref": ref, "sent": sent, "original": original}


def find_images(parts: Sequence[Part]) -> Iterator[str]:
    """Images of a segment as data addresses. One at another address is not loaded, so it is not here."""
    for part in parts:
        if isinstance(part, ToolResult):
            yield from find_images(part.content)
        if not isinstance(part, Image):
            continue
        source = part.url
        if part.data:
            source = f"data:{part.media_type or 'image/png'};base64,{part.data}"
        if _IMAGE.match(source) and len(source) <= LONGEST_IMAGE:
            yield source


def _path_of(envelope: Envelope, entry: Entry) -> str:
    """The file that a call or its result is about, "" if there is none."""
    at = next(at for at, other in enumerate(envelope.entries) if other is entry)
    return _subjects_of(envelope.entries).get(at, ("", ""))[1]


def _find_entry(envelope: Envelope, ref: str) -> Entry:
    for entry in envelope.entries:
        if str(entry.ref) == ref:
            return entry
    raise BadInput(f"the request has no segment {ref!r}", place="segment", hint="the window map lists them")


def _text_of_parts(parts: Sequence[Part]) -> str:
    texts: list[str] = []
    for part in parts:
        match part:
            case Text(text=text):
                texts.append(text)
            case ToolCall():
                texts.append(f"{part.name}({part.arguments})")
            case ToolResult(content=content):
                texts.append(_text_of_parts(content))
            case Thinking():
                texts.append(text_of((part,)) or "[thinking]")
            case Image(url=url):
                is_elsewhere = url and not url.startswith("data:")
                texts.append(f"[image at {url}, not loaded]" if is_elsewhere else "[image]")
            case _:
                texts.append(text_of((part,)) or f"[{type(part).__name__.lower()}]")
    return "\n".join(texts)


def compare_texts(original: str, sent: str) -> Iterator[tuple[str, str]]:
    """Lines of both texts: " " for one that is in both, "-" for one that was left out, "+" for a new one."""
    if original == sent:
        return
    before = original.split("\n")[:LONGEST_DIFFERENCE]
    after = sent.split("\n")[:LONGEST_DIFFERENCE]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if len(before) * len(after) > 4_000_000:
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=True)
    for operation, start, end, new_start, new_end in matcher.get_opcodes():
        if operation == "equal":
            yield from ((" ", line) for line in before[start:end])
            continue
        yield from (("-", line) for line in before[start:end])
        yield from (("+", line) for line in after[new_start:new_end])


def explain_form(entry: Entry, history: Sequence[Any], built: BuiltSession) -> str:
    """Why a segment is sent as it is, in a sentence or two."""
    forms = {
        "FULL": "It is sent in full",
        "COMPACT": "It is sent shortened",
        "STUB": "Only its name and a handle are sent",
        "OMITTED": "It is not sent",
    }
    sentence = forms[entry.form.name]
    if entry.why:
        sentence += f": {entry.why}"
    sentence += "."
    if len(history) > 1:
        last = history[-1]
        sentence += f" It was lowered at request {last.call + 1} of {len(built.calls)}."
    if entry.form is not Form.FULL and entry.segment.origin != "lamina":
        sentence += " Pin it to keep it in full, or recall it by its handle."
    return sentence


# Two requests.


def compare_requests(
    inspector: Inspector, session_id: str, before: int, after: int, settings: BuildSettings
) -> Json:
    """Where and why two requests part, what that costs, and what to do."""
    built = inspector.built(session_id, settings)
    find_call(built, before)
    find_call(built, after)
    envelopes = [inspector.builder.build_call(built, number) for number in (before, after)]
    requests = [render_request(built, envelope) for envelope in envelopes]
    gap = None
    times = (built.calls[before].at, built.calls[after].at)
    if times[0] is not None and times[1] is not None:
        gap = max(times[1] - times[0], 0.0)
    chat = DIALECTS[CHAT]
    difference = diff(requests[0], requests[1], rules=built.rules, gap=gap, dialect=chat)
    answer: Json = msgspec.to_builtins(difference)
    if any(call.cut for call in built.calls[before + 1 : after + 1]):
        own_cause = diff(
            envelopes[0], envelopes[1]
        )  # what lamina did itself, it knows better than the bytes say
        answer |= {name: getattr(own_cause, name) for name in ("cause", "sentence", "advice", "name")}
    answer["before"] = before
    answer["after"] = after
    answer["gap"] = gap
    answer["sides"] = list(_compare_messages(requests[0], requests[1]))
    return answer


def _compare_messages(before: Json, after: Json) -> Iterator[Json]:
    """The messages of two requests side by side, from the first that differs on; equal ones are counted."""
    one = before["messages"]
    other = after["messages"]
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    yield {"shared": shared}
    for at in range(shared, min(max(len(one), len(other)), shared + 40)):
        yield {
            "at": at,
            "before": _clip(one[at]) if at < len(one) else None,
            "after": _clip(other[at]) if at < len(other) else None,
        }


def _clip(message: Json) -> Json:
    return {"role": message.get("role", ""), "text": msgspec.json.encode(message).decode()[:4_000]}


# What if, and was it visible.


def show_what_if(inspector: Inspector, session_id: str, settings: BuildSettings) -> Json:
    """The session as it was beside the session under other settings, both priced by the same rules.

    What the provider reported stands apart: it is no simulation. Of a long session only some requests are
    built, and then the same ones on both sides.
    """
    other = inspector.built(session_id, msgspec.structs.replace(settings, policy=LAMINA))
    recorded = inspector.built(session_id, BuildSettings(rules=other.rules.name))
    reported_dollars = recorded.session.summary.dollars
    if other.skipped:
        numbers = [call.number for call in other.calls]
        recorded = build_session(recorded.session, recorded.settings, numbers=numbers)
    window = settings.window or recorded.session.window
    last = other.calls[-1]
    return {
        "reported_dollars": None if other.skipped else reported_dollars,
        "recorded": sum_calls(recorded.calls),
        "other": sum_calls(other.calls),
        "settings": msgspec.to_builtins(other.settings),
        "limits": _limits(other),
        "calls": [show_call(call) for call in other.calls],
        "skipped": other.skipped,
        "over_window": sum(call.tokens + other.unrecorded > window for call in recorded.calls),
        "visible_names": _count_visible_names(other),
        "last": {"in_full": last.entries, "left_out": last.left_out},
    }


def _count_visible_names(built: BuiltSession) -> Json:
    """Of the names, paths and numbers that answers took from earlier context: how many stood in the request.

    Everything else could have been recalled.
    """
    needed = sum(call.needed for call in built.calls)
    return {"needed": needed, "visible": sum(call.visible for call in built.calls)}


def find_visible(inspector: Inspector, session_id: str, text: str, settings: BuildSettings) -> Json:
    """At which requests a text was visible, in which form, and where it would have had to be recalled.

    Between two cuts requests only grow, so one request of each such run is looked at: its last one.
    """
    if not text.strip():
        raise BadInput("there is nothing to look for", place="text", hint="give a text or a path")
    built = inspector.built(session_id, settings)
    lowered_text = text.lower()
    states = dict.fromkeys((call.number for call in built.calls), "")
    matches: dict[str, Json] = {}
    for first, last in find_runs(built.calls):
        for entry in inspector.builder.build_call(built, last).entries:
            if lowered_text not in _text_of_parts(entry.segment.parts).lower():
                continue
            arrived = built.arrivals.get(entry.ref, first)
            state = _visibility(entry, lowered_text)
            for number in states:
                is_in_run = max(arrived, first) <= number <= last
                if is_in_run and _VISIBILITY.index(state) > _VISIBILITY.index(states[number]):
                    states[number] = state
            if len(matches) < MOST_MATCHES:
                what = describe_segment(entry.segment)
                matches.setdefault(str(entry.ref), {"ref": str(entry.ref), "what": what, "arrived": arrived})
    return {
        "text": text,
        "states": list(states.values()),
        "matches": list(matches.values()),
        "visible": sum(state in ("full", "part") for state in states.values()),
        "hidden": list(states.values()).count("recall"),
        "turns": _states_of_turns(built.calls, list(states.values())),
    }


def _states_of_turns(calls: Sequence[BuiltCall], states: Sequence[str]) -> list[Json]:
    """What the last request of each turn showed."""
    last_states: dict[int, str] = {}
    for call, state in zip(calls, states, strict=True):
        last_states[call.turn] = state
    return [{"turn": turn, "state": state} for turn, state in last_states.items()]


_VISIBILITY = ("", "recall", "part", "full")
"""How much of a text a request shows, from nothing to all of it."""


def _visibility(entry: Entry, lowered_text: str) -> str:
    if entry.form is Form.FULL:
        return "full"
    if entry.form is not Form.OMITTED and lowered_text in _text_of_parts(entry.parts).lower():
        return "part"
    return "recall"


def find_runs(calls: Sequence[BuiltCall]) -> list[tuple[int, int]]:
    """The first and the last request of each run in which every request continues the one before it."""
    runs: list[tuple[int, int]] = []
    for call in calls:
        if call.error:
            continue
        begins = bool(call.cut) or not call.continues
        if begins or not runs:
            runs.append((call.number, call.number))
        else:
            runs[-1] = (runs[-1][0], call.number)
    return runs


def export_request(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """The request as it would be sent, as JSON."""
    built = inspector.built(session_id, settings)
    find_call(built, number)
    return render_request(built, inspector.builder.build_call(built, number))


def write_curl(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """A command that sends the request. Its key comes from the environment of whoever runs it."""
    request = export_request(inspector, session_id, number, settings)
    lines = [
        "curl https://api.openai.com/v1/chat/completions",
        "-H 'Content-Type: application/json'",
        '-H "Authorization: Bearer $OPENAI_API_KEY"',
        f"-d {shlex.quote(msgspec.json.encode(request).decode())}",
    ]
    return {"curl": " \\\n  ".join(lines)}


def export_session(inspector: Inspector, session_id: str, settings: BuildSettings) -> Json:
    """A session as an archive of its requests, in the manner of HAR: one entry for each call."""
    built = inspector.built(session_id, settings)
    entries = []
    for call in built.calls:
        if call.error:
            continue
        entries.append(
            {
                "startedDateTime": _moment(call.at),
                "request": render_request(built, inspector.builder.build_call(built, call.number)),
                "usage": {
                    "input": call.tokens,
                    "read": call.read,
                    "written": call.written,
                    "output": call.output,
                },
                "lamina": {"cut": call.cut, "continues": call.continues, "dollars": call.dollars},
            }
        )
    return {"log": {"version": "1.0", "creator": {"name": "lamina"}, "entries": entries}}


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def read_settings(query: dict[str, str]) -> BuildSettings:
    """Settings from the words of an address. A word that is not a number raises BadInput."""
    return BuildSettings(
        policy=query.get("policy") or AS_RECORDED,
        window=_whole(query, "window") or 0,
        trigger=_share(query, "trigger"),
        target=_share(query, "target"),
        keep_last=_whole(query, "keep_last"),
        rules=query.get("rules", ""),
        left_out=_list(query.get("left_out", "")),
        pinned=_list(query.get("pinned", "")),
    )


def _whole(query: dict[str, str], name: str) -> int | None:
    word = query.get(name, "")
    if not word:
        return None
    if not word.isascii() or not word.isdigit():
        raise BadInput(f"{name} is {word!r}", place=name, hint="give a whole number")
    return int(word)


def _share(query: dict[str, str], name: str) -> float | None:
    word = query.get(name, "")
    if not word:
        return None
    try:
        return float(word)
    except ValueError:
        raise BadInput(
            f"{name} is {word!r}", place=name, hint="give a share of the room, such as 0.5"
        ) from None


def _list(word: str) -> tuple[str, ...]:
    return tuple(item for item in word.split(",") if item)
