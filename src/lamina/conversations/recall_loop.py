"""Calls of lamina's own tools inside one call of a client, most of all recalls: the client never sees them.

    client: request ──▶ model: recall("k…") ──▶ the request again, with the text ──▶ model: answer ──▶ client

A client's history has the answer, but not the recall before it. So the exchange is remembered, and
`splice_exchanges` puts it back at its place in every later request: the model reads what it read before, and
the cached prefix holds. If the model calls a tool of the client in the same breath, the client gets the
answer without the recall, and the result of the recall is put beside the results of the client.

Nothing is sent here and no SDK is imported: whoever sends requests passes each answer to `RecallLoop.take`.
Which tools are lamina's the request says (`Fitted.own_names`); a recall stands for a call of any of them
here. `lamina.conversations.recall_filter` leaves them out of what the client sees.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, filterfalse
from typing import Any

import msgspec

from lamina.conversations.recall_answers import change_field
from lamina.conversations.request_digests import RequestDigests
from lamina.core.values import RequestHead, Role, Segment, Text, Thinking, ToolCall
from lamina.dialects.json_values import list_or_empty, read_field
from lamina.dialects.origins import ORIGIN, read_origin
from lamina.dialects.pairing import list_calls
from lamina.dialects.port import Absorbed, Dialect
from lamina.fitting.fitted import Fitted
from lamina.fitting.recalls import TURN_FIELDS, read_turns, render_turns
from lamina.segments import result

ROUNDS = 8
"""How often a model may recall something before it answers. After that it is told to answer."""

ENOUGH = "{name} was called {rounds} times in a row; answer with what you have"

PREVIOUS_ANSWER = "previous_response_id"
"""The field in which a request of the Responses API names the answer that it continues."""


class RecallPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a client's request: how many turns and segments it had, and the hash of all of them.

    `system` is the digest of the system text that they stood under.
    """

    turns: int
    segments: int
    link: bytes
    system: str = ""


class RecallExchange(msgspec.Struct, frozen=True, kw_only=True):
    """What was said between a client's request and the answer that the client got, in the dialect's words.

    `turns` are the recalls and their results, which come before the answer. `answer` replaces the client's
    version of it, if the client did not see all of it, and `results` are recalled texts that belong beside
    the results of the client's own tools. `view` tells the client's version of the answer from others.
    An API that keeps answers gives them ids: `shown_id` is the one that the client saw, and `last_id` that of
    the model's last answer.
    """

    place: RecallPlace
    view: str
    turns: tuple[Any, ...] = ()
    answer: tuple[Any, ...] = ()
    results: tuple[Any, ...] = ()
    shown_id: str = ""
    last_id: str = ""

    @property
    def changes_next(self) -> bool:
        """Whether a request must be changed that continues the answer with the id that the client saw."""
        return bool(self.shown_id) and (self.shown_id != self.last_id or bool(self.results))


class _Answer(msgspec.Struct):
    """An answer of the model: its calls, what of it recalls something, and what the client sees."""

    segments: tuple[Segment, ...] = ()
    calls: list[ToolCall] = []
    recalls: list[Segment] = []
    visible: list[Segment] = []


class RecallLoop:
    """The recalls of one call of a client. Give it each answer of the model, until `take` returns nothing."""

    def __init__(self, dialect: Dialect, *, streams: bool = False) -> None:
        self.rounds = 0
        self.own_names: frozenset[str] = frozenset()
        self._dialect = dialect
        self._streams = streams
        self._exchanged: list[Segment] = []
        self._spoken: list[Segment] = []
        self._answer = _Answer()
        self._results: list[Segment] = []
        self._head = RequestHead()
        self._is_exhausted = False

    def take(self, absorbed: Absorbed, fitted: Fitted, *, shows_call: bool = False) -> tuple[Any, ...]:
        """Take an answer to the request `fitted`. Returns the turns to append to the request and send again.

        If it returns (), the answer is for the client. `shows_call`: the client sees a call of its own in it.
        That call need not be in `absorbed`: one that `max_tokens` cut off cannot be read, but it was shown,
        and another answer after it would hide why the model stopped.
        """
        self._head = fitted.envelope.head
        self.own_names |= fitted.own_names
        segments = _separate_recalls(absorbed.segments, self.own_names)
        self._answer = _read_answer(segments, self.own_names)
        if not self._answer.recalls:
            return ()
        # It was told to answer, or the recalled text left no room for the tool, and it recalls all the same.
        if self.rounds > ROUNDS or not fitted.has_recall:
            self._drop_recalls()
            return ()
        results: list[Segment] = []
        for call in self._answer.calls:
            own_result = self._answer_call(call, fitted)
            if own_result is not None:
                results.append(own_result)
        has_client_calls = len(results) < len(self._answer.calls)
        if has_client_calls or shows_call:
            self._results = results
            return ()
        self.rounds += 1
        exchanged = [*segments, *results]
        self._exchanged += exchanged
        self._spoken += self._answer.visible
        return self._render(exchanged)

    def exchange(self, place: RecallPlace) -> RecallExchange | None:
        """What to remember of this call, or None if nothing was recalled."""
        if not self._exchanged and not self._results:
            return None
        visible = self._answer.visible
        is_partial = bool(self._results)
        if self._streams and self._spoken:
            visible = [*self._spoken, *visible]
            is_partial = True
        answer: tuple[Any, ...] = ()
        if is_partial:
            # Each call gets a result while it is rendered, since a call without one would be repaired.
            results = [result("", id=call.id, name=call.name) for call in self._answer.calls]
            turns = self._render([*self._answer.segments, *results])
            answer = tuple(filterfalse(_holds_results, turns))
        recalled: tuple[Any, ...] = ()
        if self._results:
            turns = self._render([*self._answer.recalls, *self._results])
            recalled = tuple(filter(_holds_results, turns))
        return RecallExchange(
            place=place,
            view=_digest_view(visible),
            turns=self._render(self._exchanged),
            answer=answer,
            results=recalled,
        )

    @property
    def shows_nothing(self) -> bool:
        """Whether the model recalled to the end, and said nothing that the client could see."""
        if not self._is_exhausted:
            return False
        segments = self._answer.visible
        if self._streams:
            segments = [*self._spoken, *segments]
        parts = chain.from_iterable(segment.parts for segment in segments)
        return all(isinstance(part, Thinking) for part in parts)

    def _drop_recalls(self) -> None:
        """Leave recalls unanswered, as if the model had not called them: the client gets what is left."""
        self._is_exhausted = True
        self._answer = _read_answer(tuple(self._answer.visible), own_names=())

    def _answer_call(self, call: ToolCall, fitted: Fitted) -> Segment | None:
        """The result of a call; None if it is for the client."""
        if self.rounds >= ROUNDS and call.name in fitted.own_names:
            problem = ENOUGH.format(name=call.name, rounds=ROUNDS)
            return result(problem, id=call.id, name=call.name, error=True)
        return fitted.answer_own(call)

    def _render(self, segments: Sequence[Segment]) -> tuple[Any, ...]:
        if not segments:
            return ()
        return render_turns(segments, self._dialect, self._head)


def _separate_recalls(segments: tuple[Segment, ...], own_names: Collection[str]) -> tuple[Segment, ...]:
    """The segments of an answer, in which no recall shares its id with another call.

    Some servers give all calls of an answer one id. The client never sees the recall, so that may have
    another id: then the recalled text cannot go to the client's call, nor the client's result to the recall.
    """
    ids = [call.id for call in list_calls(segments)]
    if len(frozenset(ids)) == len(ids):
        return segments
    separated: list[Segment] = []
    for number, segment in enumerate(segments):
        call_id = ""
        match segment.parts[0]:
            case ToolCall(id=given_id, name=name) if name in own_names:
                call_id = f"{given_id or 'call'}_{name}_{number}"
        separated.append(_write_anew(segment, call_id))
    return tuple(separated)


def _write_anew(segment: Segment, call_id: str) -> Segment:
    """A segment whose message is written anew, with another id if it is a call that gets one."""
    part = segment.parts[0]
    origin = read_origin(segment)
    if origin is not None:
        # Otherwise rendering would pass the provider's message on as it came, with the shared id.
        origin = msgspec.structs.replace(origin, is_mended=True)
    if call_id and isinstance(part, ToolCall):
        segment = msgspec.structs.replace(segment, parts=(msgspec.structs.replace(part, id=call_id),))
        if origin is not None and isinstance(origin.block, list):
            origin = msgspec.structs.replace(origin, block=_rename_blocks(origin.block, part.id, call_id))
    if origin is None:
        return segment
    return msgspec.structs.replace(segment, meta={**segment.meta, ORIGIN: origin})


def _rename_blocks(blocks: Sequence[Any], old_id: str, call_id: str) -> list[Any]:
    """The blocks of a call with another id. Gemini has it inside, where rendering changes it."""
    renamed = list(blocks)
    for position, block in enumerate(blocks):
        if read_field(block, "id") == old_id:
            renamed[position] = change_field(block, "id", call_id)
        tool_use = read_field(block, "toolUse")  # of Bedrock
        if read_field(tool_use, "toolUseId") == old_id:
            renamed[position] = change_field(block, "toolUse", change_field(tool_use, "toolUseId", call_id))
    return renamed


def _read_answer(segments: tuple[Segment, ...], own_names: Collection[str]) -> _Answer:
    """Sort the segments of an answer: calls of the tools with these names are not the client's."""
    answer = _Answer(segments=segments)
    for segment in segments:
        calls = [part for part in segment.parts if isinstance(part, ToolCall)]
        answer.calls += calls
        if any(call.name in own_names for call in calls):
            answer.recalls.append(segment)
        else:
            answer.visible.append(segment)
    return answer


def append_turns(request: Mapping[str, Any], turns: Iterable[Any]) -> dict[str, Any]:
    """The request with more turns at its end."""
    return _with_turns(request, [*read_turns(request), *turns])


def continue_answer(request: Mapping[str, Any], last_id: str, results: Sequence[Any]) -> dict[str, Any]:
    """A request that continues an answer which its API keeps, with the recalled texts it waits for."""
    changed = {**request, PREVIOUS_ANSWER: last_id}
    if results:
        changed["input"] = [*results, *read_turns(request)]
    return changed


def place_after(request: Mapping[str, Any], digests: RequestDigests) -> RecallPlace | None:
    """The place at the end of a client's request, or None if it says nothing."""
    if not digests.chain:
        return None
    return RecallPlace(
        turns=len(read_turns(request)),
        segments=len(digests.chain),
        link=digests.chain[-1],
        system=digests.system_digest,
    )


def splice_exchanges(
    request: Mapping[str, Any], exchanges: Sequence[RecallExchange], digests: RequestDigests
) -> Mapping[str, Any]:
    """A client's request with the exchanges put back where they were.

    `digests` are those of the client's request. Exchanges whose place is not in it are left out.
    """
    turns = read_turns(request)
    spliced: list[Any] = []
    position = 0
    for exchange in _choose_exchanges(exchanges, digests):
        place = exchange.place
        # Another exchange covers this place already, or the answer to it is not in the request.
        if not position <= place.turns < len(turns):
            continue
        spliced += turns[position : place.turns]
        spliced += exchange.turns
        position = place.turns
        if exchange.answer and _digest_answer(digests, place.segments) == exchange.view:
            spliced += exchange.answer
            position = _index_after_answer(turns, position)
            if exchange.results:
                results, position = _join_results(exchange.results, turns, position)
                spliced += results
    if not spliced:
        return request
    return _with_turns(request, [*spliced, *turns[position:]])


def select_exchanges(
    exchanges: Iterable[RecallExchange], digests: RequestDigests
) -> tuple[RecallExchange, ...]:
    """The exchanges whose place is in a request: the client still has everything that they stand on.

    The others hold recalled text that the client may have deleted, or that is of another conversation, which
    only looks alike.
    """
    return tuple(exchange for exchange in exchanges if _has_place(digests, exchange.place))


def _has_place(digests: RequestDigests, place: RecallPlace) -> bool:
    """Whether a request begins with everything that came before this place, under the same system text."""
    if place.system != digests.system_digest:
        return False
    return place.segments <= len(digests.chain) and digests.chain[place.segments - 1] == place.link


def _choose_exchanges(exchanges: Sequence[RecallExchange], digests: RequestDigests) -> list[RecallExchange]:
    """One exchange for each place, in order: the one whose answer follows there, else the last."""
    by_place: dict[int, RecallExchange] = {}
    for exchange in exchanges:
        place = exchange.place
        if not _has_place(digests, place) or place.segments == len(digests.chain):
            continue
        earlier = by_place.get(place.segments)
        if earlier is not None and earlier.view == _digest_answer(digests, place.segments):
            continue
        by_place[place.segments] = exchange
    return [by_place[index] for index in sorted(by_place)]


def _digest_answer(digests: RequestDigests, index: int) -> str:
    """Digest the answer that begins at this segment of a client's request."""
    end = index
    while end < len(digests.segments) and digests.segments[end].role is Role.ASSISTANT:
        end += 1
    return _digest_view(digests.segments[index:end])


def _digest_view(segments: Iterable[Segment]) -> str:
    """Digest what a client sees of an answer: all its text and its calls, however divided."""
    texts: list[str] = []
    calls: list[str] = []
    for segment in segments:
        for part in segment.parts:
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, ToolCall):
                calls.append(_identify_call(part))
    content = "\0".join(["".join(texts), *calls])
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _identify_call(call: ToolCall) -> str:
    """The id of a call. If the API has none, lamina's own is made of the call's place in the answer.

    A client does not see the recalls in an answer, so its calls have other places: `call_0_read` is the
    `call_1_read` of the model. Such a call is known by its name and its arguments.
    """
    if call.id.startswith("call_") and call.id.endswith(f"_{call.name}"):
        return f"{call.name} {_normalise_json(call.arguments)}"
    return call.id


def _normalise_json(text: str) -> str:
    """The same text for the same arguments, however a client writes them."""
    try:
        return json.dumps(json.loads(text or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _join_results(results: Sequence[Any], turns: Sequence[Any], position: int) -> tuple[list[Any], int]:
    """Put recalled texts beside the client's results, and return the position after what was used.

    Where a message holds several results, all results of one answer must be in the same message.
    """
    if position == len(turns) or read_field(results[0], "role") != "user":
        return list(results), position
    own_content = read_field(turns[position], "content")
    if not isinstance(own_content, list | tuple):
        return list(results), position
    content: list[Any] = []
    for turn in results:
        content += turn["content"]
    return [{"role": "user", "content": [*content, *own_content]}], position + 1


def _index_after_answer(turns: Sequence[Any], start: int) -> int:
    """The index of the first turn from `start` on that is not the model's."""
    for index in range(start, len(turns)):
        if not _is_by_model(turns[index]):
            return index
    return len(turns)


def _is_by_model(turn: Any) -> bool:
    """Whether the model said a turn. Items without a role are calls and reasoning, or results of tools."""
    role = read_field(turn, "role")
    if role:
        return role in ("assistant", "model")
    return not _holds_results(turn)


_RESULT_FIELDS = ("tool_use_id", "function_response", "functionResponse", "toolResult")
"""Fields that only a block with a result has."""


def _holds_results(turn: Any) -> bool:
    """Whether a turn holds results of tools, in the words of any dialect."""
    if read_field(turn, "role") == "tool":
        return True
    if str(read_field(turn, "type")).endswith("_output"):
        return True
    for block in list_or_empty(read_field(turn, "content") or read_field(turn, "parts")):
        if any(read_field(block, name) for name in _RESULT_FIELDS):
            return True
    return False


def _with_turns(request: Mapping[str, Any], turns: list[Any]) -> dict[str, Any]:
    """The request with these turns in place of its own."""
    for name in TURN_FIELDS:
        if request.get(name) is not None:
            return {**request, name: turns}
    return dict(request)
