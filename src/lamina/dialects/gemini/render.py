"""An envelope as a generateContent request, in the shape that it came in; else in that of the SDK.

A content of which nothing changed is the object that was parsed; of one that changed in part, the other
parts are. Rendering adds what this API asks for: the calls of a step stand in one content, and so do its
results, right after it; calls that no Gemini model made carry the signature that Google documents for
them; a request begins with the user where it would begin with a call, and ends with the user. Later
instructions are said in the user's voice, since only the head has system text. It decides nothing about
what is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.values import Entry, Layer, Role, Thinking, ToolCall, ToolResult
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
from lamina.dialects.port import elsewhere, groups, original, wire
from lamina.errors import BadInput


def render(envelope: Envelope) -> Json:
    """The request for this envelope."""
    writer = _Writer(envelope)
    found = groups(envelope)
    system = [entry for group in found if group[0].layer is Layer.SYSTEM for entry in group]
    said = [group for group in found if group[0].layer is not Layer.SYSTEM]
    return request_of(envelope.head, writer.contents(said), writer.system(system))


class _Writer:
    """What every content of one request is written with: spelling, signatures, names that are taken."""

    def __init__(self, envelope: Envelope) -> None:
        parameters = envelope.head.parameters
        self.say = spelling(parameters)
        self.signs = wants_signatures(model_of(parameters))
        functions = (function for _, _, function in declarations(envelope.head.tools))
        self.defined = frozenset(text_at(function, "name") for function in functions)

    def system(self, entries: list[Entry]) -> Any:
        """The system text as it came, or as parts; None without any."""
        whole = original(entries, NAME) if entries else None
        if whole is not None:
            return whole
        parts = [block for entry in entries for block in self._blocks(entry)]
        return {"parts": [_wrapped(part) for part in parts]} if parts else None

    def contents(self, said: list[list[Entry]]) -> Any:
        """The contents, as they came if nothing of them changed."""
        found: list[Any] = []
        for voice, grouped in groupby(said, key=lambda group: _voice(group[0])):
            run = list(grouped)
            together = _results_together(run) if voice == "user" else _calls_together(run)
            found += [made for group in together if (made := self._content(group, voice)) is not None]
        if not found:
            hint = "add a content that says something"
            raise BadInput("nothing is left to send", place="contents", hint=hint)
        made = _closed(self._signed(found))
        came = {id(_note(entry).get("of")) for group in said for entry in group}
        return _as_given(made, untouched=all(id(content) in came for content in made))

    def _content(self, group: list[Entry], voice: str) -> Any:
        whole = original(group, NAME)
        if whole is not None:
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
        signature = {self.say("thoughtSignature"): FOREIGN_SIGNATURE} if sign and not came else {}
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

    def _signed(self, contents: list[Any]) -> list[Any]:
        """Contents in which the first call of each step of the current turn has a signature (G4)."""
        if not self.signs:
            return contents
        start = max((i for i, content in enumerate(contents) if _asks(content)), default=-1)
        return [*contents[: start + 1], *map(self._with_signature, contents[start + 1 :])]

    def _with_signature(self, content: Any) -> Any:
        parts = _parts_of(content)
        at = next((i for i, part in enumerate(parts) if field(part, "functionCall") is not None), -1)
        if at < 0 or field(parts[at], "thoughtSignature"):
            return content
        signed = {**parts[at], self.say("thoughtSignature"): FOREIGN_SIGNATURE}
        given = list(content) if isinstance(content, Loose) else list((plain(content) or {})["parts"])
        given[at] = signed
        return Loose(given) if isinstance(content, Loose) else {**(plain(content) or {}), "parts": given}


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


def _closed(contents: list[Any]) -> list[Any]:
    """Contents that begin with the user where a call stands first, and end with the user."""
    first = [_dot()] if _speaks(contents[0]) == "model" and _calls(contents[0]) else []
    last = [_dot()] if _speaks(contents[-1]) == "model" else []
    return [*first, *contents, *last]


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


def _dot() -> Json:
    """What the user says where somebody must: as little as the API takes."""
    return {"role": "user", "parts": [{"text": "."}]}


def _parts_of(content: Any) -> list[Json]:
    given = content if isinstance(content, LISTS) else (plain(content) or {}).get("parts")
    return [plain(_wrapped(part)) or {} for part in given] if isinstance(given, LISTS) else []


def _speaks(content: Any) -> str:
    if isinstance(content, Loose):
        return "model" if _calls(content) else "user"
    return "user" if isinstance(content, LISTS) else str((plain(content) or {}).get("role") or "user")


def _calls(content: Any) -> bool:
    return any(field(part, "functionCall") is not None for part in _parts_of(content))


def _asks(content: Any) -> bool:
    """Whether the user says something here, not only results: a turn begins."""
    if _speaks(content) == "model":
        return False
    return any(field(part, "functionResponse") is None for part in _parts_of(content))


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
