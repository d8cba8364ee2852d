"""Recalls inside one call of a client: the model asks for what was left out, and the client never sees it.

    client: request ──▶ model: recall("k…") ──▶ the request again, with the text ──▶ model: answer ──▶ client

A client's history has the answer, but not the recall before it. So the exchange is remembered, and
`splice_exchanges` puts it back at its place in every later request: the model reads what it read before, and
the cached prefix holds. If the model calls a tool of the client in the same breath, the client gets the
answer without the recall, and the result of the recall is put beside the results of the client.

Nothing is sent here and no SDK is imported: whoever sends requests passes each answer to `RecallLoop.take`.
`lamina.fitting.recall_streams` does the same for answers that arrive in pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from lamina.core.values import Role, Segment, Text, ToolCall
from lamina.dialects.json_values import read_field
from lamina.dialects.port import Absorbed, Dialect
from lamina.fitting.recalls import RECALL, answer_recall, render_turns
from lamina.fitting.request import Fitted
from lamina.fitting.request_digests import RequestDigests
from lamina.segments import result

ROUNDS = 8
"""How often a model may recall something before it answers. After that it is told to answer."""

ENOUGH = f"recall was called {ROUNDS} times in a row; answer with what you have"

_TURN_FIELDS = ("messages", "input", "contents")


class RecallPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a client's request: how many turns and segments it had, and the hash of all of them."""

    turns: int
    segments: int
    link: bytes


class RecallExchange(msgspec.Struct, frozen=True, kw_only=True):
    """What was said between a client's request and the answer that the client got, in the dialect's words.

    `turns` are the recalls and their results, which come before the answer. `answer` replaces the client's
    version of it, if the client did not see all of it, and `results` are recalled texts that belong beside
    the results of the client's own tools. `view` tells the client's version of the answer from others.
    """

    place: RecallPlace
    view: str
    turns: tuple[Any, ...] = ()
    answer: tuple[Any, ...] = ()
    results: tuple[Any, ...] = ()


class RecallLoop:
    """The recalls of one call of a client. Give it each answer of the model, until `take` returns nothing."""

    def __init__(self, dialect: Dialect, *, streams: bool = False) -> None:
        self.rounds = 0
        self._dialect = dialect
        self._streams = streams
        self._exchanged: list[Segment] = []
        self._spoken: list[Segment] = []
        self._answer: tuple[Segment, ...] = ()
        self._results: list[Segment] = []
        self._fitted: Fitted | None = None

    def take(self, absorbed: Absorbed, fitted: Fitted) -> tuple[Any, ...]:
        """Take an answer to the request `fitted`. Returns the turns to append to the request and send again.

        If it returns (), the answer is for the client.
        """
        self._fitted = fitted
        calls = [part for part in _parts_of(absorbed.segments) if isinstance(part, ToolCall)]
        recalls = [call for call in calls if call.name == RECALL.name]
        if not recalls or self.rounds > ROUNDS:
            self._answer = absorbed.segments
            return ()
        results = [self._answer_call(call, fitted) for call in recalls]
        if len(recalls) < len(calls):
            self._answer = absorbed.segments
            self._results = results
            return ()
        self.rounds += 1
        self._exchanged += [*absorbed.segments, *results]
        self._spoken += _without_recalls(absorbed.segments)
        return self._render([*absorbed.segments, *results])

    def exchange(self, place: RecallPlace) -> RecallExchange | None:
        """Return what to remember of this call, or None if nothing was recalled."""
        if not self._exchanged and not self._results:
            return None
        visible = _without_recalls(self._answer)
        is_partial = bool(self._results)
        if self._streams:
            visible = [*self._spoken, *visible]
            is_partial = is_partial or bool(self._spoken)
        answer: tuple[Any, ...] = ()
        if is_partial:
            answer = self._render_answer()
        return RecallExchange(
            place=place,
            view=_digest_view(visible),
            turns=self._render(self._exchanged),
            answer=answer,
            results=self._render_results(),
        )

    def _answer_call(self, call: ToolCall, fitted: Fitted) -> Segment:
        if self.rounds >= ROUNDS:
            return result(ENOUGH, id=call.id, name=call.name, error=True)
        return answer_recall(fitted.log, call, ledger=fitted.ledger)

    def _render(self, segments: Sequence[Segment]) -> tuple[Any, ...]:
        if not segments or self._fitted is None:
            return ()
        return render_turns(segments, self._dialect, self._fitted.envelope.head)

    def _render_answer(self) -> tuple[Any, ...]:
        """Render the answer. Each call gets a result for that, since a call without one would be repaired."""
        results = [
            result("", id=part.id, name=part.name)
            for part in _parts_of(self._answer)
            if isinstance(part, ToolCall)
        ]
        turns = self._render([*self._answer, *results])
        return tuple(turn for turn in turns if not _holds_results(turn))

    def _render_results(self) -> tuple[Any, ...]:
        recalls = [segment for segment in self._answer if _is_recall(segment)]
        if not self._results:
            return ()
        turns = self._render([*recalls, *self._results])
        return tuple(turn for turn in turns if _holds_results(turn))


def read_turns(request: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the messages, items or contents of a request, as they came. A text is one turn of the user."""
    for name in _TURN_FIELDS:
        value = request.get(name)
        if isinstance(value, list | tuple):
            return tuple(value)
        if isinstance(value, str):
            return ({"role": "user", "content": value},)
    return ()


def append_turns(request: Mapping[str, Any], turns: Iterable[Any]) -> dict[str, Any]:
    """Return the request with more turns at its end."""
    return _with_turns(request, [*read_turns(request), *turns])


def place_after(request: Mapping[str, Any], digests: RequestDigests) -> RecallPlace | None:
    """Return the place at the end of a client's request, or None if it says nothing."""
    if not digests.chain:
        return None
    return RecallPlace(turns=len(read_turns(request)), segments=len(digests.chain), link=digests.chain[-1])


def splice_exchanges(
    request: Mapping[str, Any], exchanges: Sequence[RecallExchange], digests: RequestDigests
) -> Mapping[str, Any]:
    """Return a client's request with the exchanges put back where they were.

    `digests` are those of the client's request. Exchanges whose place is not in it are left out.
    """
    turns = read_turns(request)
    spliced: list[Any] = []
    position = 0
    for exchange in _choose_exchanges(exchanges, digests):
        place = exchange.place
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


def _choose_exchanges(exchanges: Sequence[RecallExchange], digests: RequestDigests) -> list[RecallExchange]:
    """Return one exchange for each place, in order: the one whose answer follows there, else the last."""
    by_place: dict[int, RecallExchange] = {}
    for exchange in exchanges:
        place = exchange.place
        if len(digests.chain) <= place.segments or digests.chain[place.segments - 1] != place.link:
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
    """Digest what a client sees of an answer: all its text and the ids of its calls, however divided."""
    texts: list[str] = []
    ids: list[str] = []
    for part in _parts_of(segments):
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            ids.append(part.id)
    content = "\0".join(["".join(texts), *ids])
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _join_results(results: Sequence[Any], turns: Sequence[Any], position: int) -> tuple[list[Any], int]:
    """Put recalled texts beside the client's results, and return the position after what was used.

    Where a message holds several results, all results of one answer must be in the same message.
    """
    following = turns[position] if position < len(turns) else None
    own_content = read_field(following, "content")
    if read_field(results[0], "role") != "user" or not isinstance(own_content, list | tuple):
        return list(results), position
    content = [block for turn in results for block in turn["content"]]
    return [{"role": "user", "content": [*content, *own_content]}], position + 1


def _index_after_answer(turns: Sequence[Any], start: int) -> int:
    index = start
    while index < len(turns) and _is_by_model(turns[index]):
        index += 1
    return index


def _is_by_model(turn: Any) -> bool:
    role = read_field(turn, "role")
    if role:
        return role in ("assistant", "model")
    return not _holds_results(turn)


def _holds_results(turn: Any) -> bool:
    """Whether a turn holds results of tools, in the words of any dialect."""
    if read_field(turn, "role") == "tool" or str(read_field(turn, "type")).endswith("_output"):
        return True
    blocks = read_field(turn, "content") or read_field(turn, "parts")
    if not isinstance(blocks, list | tuple) or not blocks:
        return False
    first = blocks[0]
    if read_field(first, "type") == "tool_result":
        return True
    return bool(read_field(first, "function_response") or read_field(first, "functionResponse"))


def _with_turns(request: Mapping[str, Any], turns: list[Any]) -> dict[str, Any]:
    for name in _TURN_FIELDS:
        if request.get(name) is not None:
            return {**request, name: turns}
    return dict(request)


def _without_recalls(segments: Iterable[Segment]) -> list[Segment]:
    return [segment for segment in segments if not _is_recall(segment)]


def _is_recall(segment: Segment) -> bool:
    return any(isinstance(part, ToolCall) and part.name == RECALL.name for part in segment.parts)


def _parts_of(segments: Iterable[Segment]) -> Iterable[Any]:
    for segment in segments:
        yield from segment.parts
