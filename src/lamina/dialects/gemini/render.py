"""An envelope as a generateContent request, in the shape that it came in; else in that of the SDK.

A content of which nothing changed is the object that was parsed; of one that changed in part, the other
parts are. Rendering mends what this API refuses: the calls of a step stand in one content, and so do its
results, right after it; calls that no Gemini model made, or that lost their signature, carry the one that
Google documents for them; a request begins with the user where it would begin with a call. Later
instructions are said in the user's voice, since only the head has system text. It decides nothing about
what is sent.

A missing signature is refused in the current turn only (G4). A call that was signed here must stay so when
its turn is over, so `lasting` names it and the ledger keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.values import Entry, Form, Layer, Ref, Role, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.gemini.contents import Loose, content_of
from lamina.dialects.gemini.head import declarations, request_of, spelling
from lamina.dialects.gemini.parts import NO_ID, arguments_of, block_of, response_of, shows
from lamina.dialects.gemini.wire import (
    FOREIGN_SIGNATURE,
    LISTS,
    NAME,
    Json,
    field,
    model_of,
    plain,
    safe_name,
    spelled,
    text_at,
    wants_signatures,
)
from lamina.dialects.port import ON_THE_WIRE, elsewhere, grouped, original, wire
from lamina.dialects.words import OPENING
from lamina.errors import BadInput

SIGNED = "signed by lamina: the call came without a thought signature"


def render(envelope: Envelope) -> Json:
    """The request for this envelope."""
    writer, sent = _Writer(envelope), envelope.sent
    system = [entry for entry in sent if entry.layer is Layer.SYSTEM]
    return request_of(envelope.head, writer.contents(sent), writer.system(system))


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """The calls of the current turn that must carry a signature and came without one."""
    if not wants_signatures(model_of(envelope.head.parameters)):
        return {}
    found: dict[Ref, str] = {}
    for voice, group in _contents(_current_turn(envelope.entries)):
        if voice == "user":
            continue
        first = next((entry for entry in group if isinstance(entry.parts[0], ToolCall)), None)
        if first is not None and _is_unsigned(first):
            found[Ref(f"{first.ref}{ON_THE_WIRE}")] = SIGNED
    return found


def _current_turn(entries: Sequence[Entry]) -> list[Entry]:
    """What is sent after the user last said something that is no result."""
    turn: list[Entry] = []
    for entry in reversed(entries):
        if entry.form is Form.OMITTED:
            continue
        if entry.role is not Role.ASSISTANT and not _answers(entry):
            break
        turn.append(entry)
    return turn[::-1]


def _contents(sent: Sequence[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """Entries by content: whose it is, and what stands in it."""
    said = [entry for entry in sent if entry.layer is not Layer.SYSTEM]
    for voice, in_a_row in groupby(grouped(said), key=lambda group: _voice(group[0])):
        run = list(in_a_row)
        for group in _results_together(run) if voice == "user" else _calls_together(run):
            yield voice, group


def _is_unsigned(call: Entry) -> bool:
    """Whether a call came as a part of this API without a signature."""
    came = _note(call).get("block")
    return came is not None and not field(plain(came[0]) or {}, "thoughtSignature")


class _Writer:
    """What every content of one request is written with: spelling, signatures, names that are taken."""

    def __init__(self, envelope: Envelope) -> None:
        parameters = envelope.head.parameters
        self.say = spelling(parameters)
        self.signs = wants_signatures(model_of(parameters))
        kept = {ref for ref, what in envelope.ledger.repairs.items() if what == SIGNED}
        self.signed_here = kept.union(lasting(envelope))
        functions = (function for _, _, function in declarations(envelope.head.tools))
        self.defined = frozenset(text_at(function, "name") for function in functions)

    def system(self, entries: list[Entry]) -> Any:
        """The system text as it came, or as parts; None without any."""
        whole = original(entries, NAME) if entries else None
        if whole is not None:
            return whole
        parts = [block for entry in entries for block in self._blocks(entry)]
        return {"parts": [_wrapped(part) for part in parts]} if parts else None

    def contents(self, sent: Sequence[Entry]) -> Any:
        """The contents, as they came if nothing of them changed."""
        made = [self._content(group, voice) for voice, group in _contents(sent)]
        found = _begun([content for content in made if content is not None])
        if not found:
            hint = "add a content that says something"
            raise BadInput("nothing is left to send", place="contents", hint=hint)
        came = {id(_note(entry).get("of")) for entry in sent}
        return _as_given(found, untouched=all(id(content) in came for content in found))

    def _content(self, group: list[Entry], voice: str) -> Any:
        whole = original(group, NAME)
        if whole is not None and not any(map(self._signed_here, group)):
            return whole
        parts = [_wrapped(part) for part in self._parts(group)]
        if not parts:
            return None
        notes = [_note(entry).get("of") for entry in group]
        fields = content_of(notes[0]) if notes[0] is not None and all(n is notes[0] for n in notes) else {}
        return {"role": voice, "parts": parts, **fields}

    def _parts(self, group: list[Entry]) -> Iterator[Any]:
        """The parts of a content: results first, then what they show, then the rest."""
        results = [entry for entry in group if isinstance(entry.parts[0], ToolResult)]
        for entry in results:
            yield from self._blocks(entry)
        for entry in results:
            yield from self._shown(entry)
        signed = not self.signs
        for entry in group:
            call = entry.parts[0]
            if isinstance(call, ToolCall):
                yield self._call(entry, call, sign=not signed)
                signed = True
            elif not isinstance(call, ToolResult):
                yield from self._blocks(entry)

    def _blocks(self, entry: Entry) -> list[Any]:
        part, came = entry.parts[0], _note(entry).get("block")
        if isinstance(part, ToolResult):
            return [self._result(entry, part)]
        if came and wire(entry, NAME):
            return list(came)
        was = plain(came[0]) if came and len(came) == 1 else None
        if was is not None and isinstance(was.get("text"), str):
            return [_reworded(was, text_of(entry.parts))]
        if isinstance(part, Thinking) and elsewhere(entry.segment, NAME):
            return []
        made = (block_of(part, self.say) for part in entry.parts)
        return [block for block in made if block is not None]

    def _call(self, entry: Entry, call: ToolCall, *, sign: bool) -> Any:
        """A call as its part, in which only what changed is new; one that came from elsewhere is signed."""
        came = _note(entry).get("block")
        was = (plain(came[0]) or {}) if came else {}
        named = spelled(was, "functionCall") or self.say("functionCall")
        asked = dict(plain(was.get(named)) or {})
        before = entry.segment.parts[0]
        same = came and isinstance(before, ToolCall) and before.arguments == call.arguments
        asked |= _id(call.id) | {"name": self._name(call.name)}
        asked |= {} if same else {"args": arguments_of(call)}
        sign = self._signed_here(entry) or (sign and not came)
        signature = {self.say("thoughtSignature"): FOREIGN_SIGNATURE} if sign else {}
        now = {**was, named: asked, **signature}
        return came[0] if came and now == was else now

    def _result(self, entry: Entry, result: ToolResult) -> Any:
        """A result as its part, in which only what changed is new."""
        came = _note(entry).get("block")
        was = (plain(came[0]) or {}) if came else {}
        named = spelled(was, "functionResponse") or self.say("functionResponse")
        given = plain(was.get(named)) or {}
        name = entry.asked.name if entry.asked else result.name
        answer = {key: value for key, value in given.items() if key != "id"}
        answer |= _id(result.id) | {"name": self._name(name)}
        response = plain(given.get("response"))
        if response is None or _changed(entry, result):
            answer["response"] = response_of(result, response or {})
            answer.pop("parts", None)
        now = {**was, named: answer}
        return came[0] if came and now == was else now

    def _shown(self, entry: Entry) -> Iterator[Json]:
        """Media of a result that is written anew, which stand beside it."""
        result = entry.parts[0]
        if not isinstance(result, ToolResult) or (_note(entry) and not _changed(entry, result)):
            return
        for part in result.content:
            if shows(part) and (block := block_of(part, self.say)) is not None:
                yield block

    def _name(self, name: str) -> str:
        """A name that the API takes; what the request itself defines is left alone."""
        return name if name in self.defined else safe_name(name)

    def _signed_here(self, entry: Entry) -> bool:
        """Whether this call carries a signature of lamina's, now or since an earlier request."""
        return bool(self.signed_here) and f"{entry.ref}{ON_THE_WIRE}" in self.signed_here


def _voice(entry: Entry) -> str:
    return "model" if entry.role is Role.ASSISTANT else "user"


def _calls_together(run: list[list[Entry]]) -> list[list[Entry]]:
    """What the model says in a row, in one content if it makes calls: they come right after the user."""
    calls = any(isinstance(entry.parts[0], ToolCall) for group in run for entry in group)
    return [[entry for group in run for entry in group]] if calls and len(run) > 1 else run


def _results_together(run: list[list[Entry]]) -> list[list[Entry]]:
    """What the user's side says in a row, with all its results in the first content."""
    last = max((i for i, group in enumerate(run) if any(map(_answers, group))), default=0)
    return [[e for group in run[: last + 1] for e in group], *run[last + 1 :]] if last else run


def _answers(entry: Entry) -> bool:
    return isinstance(entry.parts[0], ToolResult)


def _begun(contents: list[Any]) -> list[Any]:
    """Contents that begin with the user where a call would stand first (G1)."""
    calls_first = bool(contents) and _speaks(contents[0]) == "model" and _calls(contents[0])
    return [_opening(), *contents] if calls_first else contents


def _as_given(contents: list[Any], *, untouched: bool) -> Any:
    """The value of `contents`. Beside contents of ours loose parts get one, since the SDK sorts a mixture."""
    loose = [content for content in contents if isinstance(content, Loose)]
    if len(loose) == len(contents) == 1 and loose[0].bare:
        return loose[0][0]
    kept = untouched or len(loose) == len(contents)
    found: list[Any] = []
    for content in contents:
        if not isinstance(content, Loose):
            found.append(content)
        elif kept:
            found += content
        else:
            found.append({"role": _speaks(content), "parts": [_wrapped(part) for part in content]})
    return found


def _opening() -> Json:
    """What stands first where a call would: the API wants a content of the user there."""
    return {"role": "user", "parts": [{"text": OPENING}]}


def _parts_of(content: Any) -> list[Json]:
    given = content if isinstance(content, LISTS) else (plain(content) or {}).get("parts")
    return [plain(_wrapped(part)) or {} for part in given] if isinstance(given, LISTS) else []


def _speaks(content: Any) -> str:
    if isinstance(content, Loose):
        return "model" if _calls(content) else "user"
    return "user" if isinstance(content, LISTS) else str((plain(content) or {}).get("role") or "user")


def _calls(content: Any) -> bool:
    return any(field(part, "functionCall") is not None for part in _parts_of(content))


def _wrapped(part: Any) -> Any:
    """A part as it stands in a content, where text needs its name."""
    return {"text": part} if isinstance(part, str) else part


def _reworded(was: Json, text: str) -> Json:
    """A part with another text: what was signed is not there any more, and so its signature is not."""
    signed = spelled(was, "thoughtSignature")
    return {name: value for name, value in was.items() if name != signed} | {"text": text}


def _changed(entry: Entry, result: ToolResult) -> bool:
    before = entry.segment.parts[0]
    return not isinstance(before, ToolResult) or before.content != result.content


def _id(id_: str) -> Json:
    """The field for an id, if the wire has one."""
    return {} if id_.startswith(NO_ID) or not id_ else {"id": id_}


def _note(entry: Entry) -> Json:
    """What parsing noted on the entry's segment, unless it now speaks in another voice."""
    note: Json = entry.segment.meta.get("wire", {})
    return note if note.get("dialect") == NAME and entry.role is entry.segment.role else {}
