"""The bridge that all adapters stand on: a framework's messages go in, and those to send come out.

    messages ──write──▶ turns ──fit_request──▶ turns ──read──▶ messages ──▶ answer
                                  ▲                                              │
                                  └── ledger ◀──────────────── add_report ◀──────┘

A **turn** is one item of a dialect's list of messages, such as a dict of the Chat Completions API. A codec
writes a message as turns and reads turns back. `ContextFitter` calls `fit_request` between the two. It
compares turns by identity: a message whose turns all come out as they went in is returned as the framework's
very object, with its ids, metadata and signatures. Only lowered and inserted messages are new objects.

A fitter has no state that matters: the framework keeps the ledger, as JSON, where it keeps the conversation.
What the provider reports of a call goes there too, by `add_report`, so that the next fit counts as the
provider does, also in another process.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, TypeVar

import msgspec

from lamina.core.ledger import load_ledger
from lamina.core.values import Budget, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.usage import find_usage
from lamina.fitting.policy import Policy, RecallMode, choose_policy
from lamina.fitting.recalls import RECALL, answer_recall
from lamina.fitting.request import Fitted, RequestMemo, find_dialect, fit_request
from lamina.fitting.server_reports import ServerRequest, add_server_help

__all__ = [
    "PASS_THROUGH",
    "RECALL",
    "ContextFitter",
    "FittedMessages",
    "MessageCodec",
    "RecentValues",
    "Turn",
    "add_report",
]

K = TypeVar("K")
V = TypeVar("V")

_FIELDS = {"openai_responses": "input", "gemini": "contents"}
"""The field that holds the turns of a request, where it is not `messages`."""

_MEMOS = 64
"""How many conversations a fitter remembers, to read only what is new in them."""

_REPORTED = "reported_tokens"
"""The key of a ledger under which the report of its request stands until the next fit."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is sent. `place` is its place among the turns of its message, None if it was changed."""

    wire: Any
    place: int | None = None


class MessageCodec(msgspec.Struct, frozen=True, kw_only=True):
    """How a framework's messages are written in a dialect, and read back.

    `write` returns the turns of one message. A message without a turn is not sent. `read` gets turns that are
    not sent as they came, and returns one message. Its second argument is the message that they came from;
    None if lamina wrote them. Turns of that message which were not changed say their `place` in it.
    """

    write: Callable[[Any], Sequence[Any]]
    read: Callable[[Sequence[Turn], Any], Any]
    dialect: str = "openai_chat"


PASS_THROUGH = MessageCodec(write=lambda message: (message,), read=lambda turns, _: turns[0].wire)
"""For frameworks whose messages are turns of the Chat Completions dialect already."""


class FittedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages to send, and the ledger that the framework keeps for the next call.

    If nothing had to change, `messages` is the very list that was fitted.
    """

    messages: Sequence[Any]
    ledger: dict[str, Any]
    fitted: Fitted

    @property
    def has_cut(self) -> bool:
        """Whether this call was a cut."""
        return self.fitted.envelope.cut is not None

    def ask_server(self, model: str, *, thinking: Any = None) -> ServerRequest:
        """Ask Anthropic's API to drop thinking that a cut has unbound, if this model binds its thinking.

        A framework sends the messages itself, with the thinking in them. `thinking` is its configuration of
        that. Returns the fields to send instead and the headers that they need, both empty if there is
        nothing to ask for.
        """
        request: dict[str, Any] = {"model": model}
        if thinking is not None:
            request["thinking"] = thinking
        helped = add_server_help(request, ANTHROPIC, self.fitted.ledger)
        if not helped.headers:
            return ServerRequest(request={})
        return msgspec.structs.replace(helped, request={"thinking": helped.request["thinking"]})


class ContextFitter:
    """Fits the messages of one framework into a model's window.

    `policy` says how, and `budget` replaces that of the policy; without either the window of `model` counts.
    Unless the policy turns recall off, what is left out shows its handle: the agent must then have the tool
    `RECALL` from its first call on, and `answer` answers its calls. A framework's messages have no place for
    cache markers, so those of the caller stay as they are; and its tools are sent by the framework itself, so
    none of them is deferred.

    A fitter may serve many conversations, from many threads. It remembers what it has read of the last ones.
    That saves time and changes nothing.
    """

    def __init__(
        self,
        codec: MessageCodec = PASS_THROUGH,
        *,
        model: str = "",
        policy: Policy | None = None,
        budget: Budget | int | None = None,
    ) -> None:
        self.codec = codec
        self.model = model
        self.policy = choose_policy(policy, budget=budget, place="budget")
        self.budget = self.policy.own_budget
        self.recall = self.policy.recall != "off"
        recall_mode: RecallMode = "off"
        if self.recall:
            recall_mode = "handles"
        self._sent_policy = msgspec.structs.replace(
            self.policy, breakpoints="keep", recall=recall_mode, load_tools=None
        )
        self._dialect = find_dialect(codec.dialect)
        self._field = _FIELDS.get(codec.dialect, "messages")
        self._memos: RecentValues[str, _Memo] = RecentValues(_MEMOS)

    def fit(
        self,
        messages: Sequence[Any],
        *,
        system: str | Sequence[str] = "",
        tools: Sequence[Mapping[str, Any]] = (),
        head: Mapping[str, Any] | None = None,
        ledger: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        conversation: str = "",
    ) -> FittedMessages:
        """The messages to send in place of `messages`, which stay whole in the framework's own state.

        `ledger` is what the last call of this conversation returned, with what `add_report` added. `system`
        is the system text, if the framework holds it apart (Chat Completions only); several texts are several
        messages. `tools` and the fields in `head` are counted, in the words of the dialect. `budget` replaces
        the fitter's for this call. `conversation` names the conversation, so that only what is new in it is
        read; without a name it is recognised by its beginning. Raises BudgetExceeded if no lowering fits the
        room, and InvalidRequest if a broken message cannot be mended.
        """
        policy = self._sent_policy
        if budget is not None:
            policy = msgspec.structs.replace(policy, budget=budget)
        turns = [self.codec.write(message) for message in messages]
        name = conversation or _name_by_beginning(turns)
        memo = self._memos.pop(name, None) or _Memo()  # no other thread has it meanwhile
        written = _join_turns(turns, memo.turns)
        memo.turns = written.turns
        system_turns = _write_system(system)
        fitted = fit_request(
            self._make_request([*system_turns, *written.turns], tools=tools, head=head),
            dialect=self._dialect,
            ledger=ledger,
            usage=(ledger or {}).get(_REPORTED),
            policy=policy,
            memo=memo.request,
        )
        self._memos[name] = memo
        sent_turns = fitted.request[self._field][len(system_turns) :]
        return FittedMessages(
            messages=_read_turns(sent_turns, messages, written, self.codec),
            ledger=fitted.ledger.dump(),
            fitted=fitted,
        )

    def answer(
        self,
        messages: Sequence[Any],
        arguments: Mapping[str, Any] | str,
        *,
        ledger: Mapping[str, Any] | None = None,
        system: str | Sequence[str] = "",
    ) -> str:
        """Answer a call of the recall tool from the whole history. An unknown key is told in the answer."""
        turns = [turn for message in messages for turn in self.codec.write(message)]
        log = self._dialect.wire.parse(self._make_request([*_write_system(system), *turns])).log
        if not isinstance(arguments, str):
            arguments = json.dumps(dict(arguments))
        call = ToolCall(id=RECALL.name, name=RECALL.name, arguments=arguments)
        result = answer_recall(log, call, ledger=load_ledger(ledger)).parts[0]
        if isinstance(result, ToolResult):
            return text_of(result.content)
        return ""

    def _make_request(
        self,
        turns: Sequence[Any],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        head: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The request that `fit_request` reads: the head, the tools, and all turns."""
        request: dict[str, Any] = {"model": self.model, **(head or {})}
        if tools:
            request["tools"] = list(tools)
        request[self._field] = list(turns)
        return request


def add_report(ledger: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """The ledger of a call with what the provider reported for it, from which the next fit learns.

    `answer` is the answer, or the usage in it, as any API has them. It may report nothing.
    """
    with_report = {**ledger}
    tokens = find_usage(answer).input
    if tokens:
        with_report[_REPORTED] = tokens
    return with_report


def _write_system(system: str | Sequence[str]) -> list[dict[str, Any]]:
    """System text that the framework holds apart, as the first turns."""
    if isinstance(system, str):
        system = [system]
    return [{"role": "system", "content": str(text)} for text in system if text]


class RecentValues(OrderedDict[K, V]):
    """A dict of the `most` values that were set last. It forgets older ones."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        while len(self) > self.most:
            self.popitem(last=False)


class _Memo:
    """What is remembered of a conversation: its turns as they were written last, and how they were read."""

    def __init__(self) -> None:
        self.turns: list[Any] = []
        self.request = RequestMemo()


class _WrittenTurn(msgspec.Struct, frozen=True):
    """Where a turn came from: the position of its message, and its place among that message's turns."""

    message: int
    place: int


class _Written(msgspec.Struct):
    """All turns, and where each came from, by its identity. `counts` says how many turns each message has."""

    turns: list[Any] = []
    origins: dict[int, _WrittenTurn] = {}
    counts: list[int] = []


def _name_by_beginning(turns_of_messages: Sequence[Sequence[Any]]) -> str:
    """Name a conversation after its first turns, up to the first one of the user.

    They stay as the conversation grows. Conversations that begin alike share a name, and so a memo. That
    costs them time, but changes nothing.
    """
    beginning: list[str] = []
    for turn in chain.from_iterable(turns_of_messages):
        beginning.append(repr(turn))
        if _read_role(turn) == "user":
            break
    return sha256("\n".join(beginning).encode(errors="surrogatepass")).hexdigest()


def _read_role(turn: Any) -> Any:
    if isinstance(turn, Mapping):
        return turn.get("role")
    return getattr(turn, "role", None)


def _join_turns(turns_of_messages: Sequence[Sequence[Any]], last_turns: Sequence[Any]) -> _Written:
    """Join the turns of all messages. A turn that equals the last one at its position becomes that object.

    Otherwise the memo of `fit_request`, which compares values, would bring back the turns of an earlier call.
    """
    written = _Written()
    for position, turns in enumerate(turns_of_messages):
        written.counts.append(len(turns))
        for place, new_turn in enumerate(turns):
            turn = new_turn
            index = len(written.turns)
            if index < len(last_turns) and last_turns[index] == new_turn:
                turn = last_turns[index]
            written.turns.append(turn)
            written.origins[id(turn)] = _WrittenTurn(position, place)
    return written


def _read_turns(
    sent_turns: Sequence[Any], messages: Sequence[Any], written: _Written, codec: MessageCodec
) -> Sequence[Any]:
    """The framework's messages for the turns that are sent."""
    sources = _SourcesById(written)
    sent_messages: list[Any] = []
    for position, turns in _group_turns(sent_turns, written, sources):
        if position is None:
            sent_messages.append(codec.read(turns, None))
        elif [turn.place for turn in turns] == list(range(written.counts[position])):
            sent_messages.append(messages[position])  # all of its turns are sent as they came
        else:
            sent_messages.append(codec.read(turns, messages[position]))
    if list(map(id, sent_messages)) == list(map(id, messages)):
        return messages
    return sent_messages


def _group_turns(
    sent_turns: Sequence[Any], written: _Written, sources: _SourcesById
) -> list[tuple[int | None, list[Turn]]]:
    """Group neighbours that came from one message. A turn of lamina's own stands alone."""
    groups: list[tuple[int | None, list[Turn]]] = []
    for wire in sent_turns:
        origin = written.origins.get(id(wire))
        if origin is None:
            position = sources.find(wire)
            turn = Turn(wire=wire)
        else:
            position = origin.message
            turn = Turn(wire=wire, place=origin.place)
        if groups and position is not None and groups[-1][0] == position:
            groups[-1][1].append(turn)
        else:
            groups.append((position, [turn]))
    return groups


class _SourcesById:
    """Finds the message that a changed turn came from, by the ids of its calls or of the call it answers."""

    def __init__(self, written: _Written) -> None:
        self._positions: dict[tuple[str, str], deque[int]] = {}
        for turn in written.turns:
            for name in _read_ids(turn):
                positions = self._positions.setdefault(name, deque())
                positions.append(written.origins[id(turn)].message)

    def find(self, wire: Any) -> int | None:
        """The first position with one of these ids that was not returned before: ids may repeat."""
        for name in _read_ids(wire):
            positions = self._positions.get(name)
            if positions:
                return positions.popleft()
        return None


def _read_ids(wire: Any) -> list[tuple[str, str]]:
    """The ids in a turn of the Chat Completions dialect; other dialects need none here.

    A turn of the model has the ids of its calls, and a tool message the id of the call that it answers.
    """
    if not isinstance(wire, Mapping):
        return []
    answered_id = wire.get("tool_call_id")
    if answered_id:
        return [("result", str(answered_id))]
    calls = wire.get("tool_calls") or ()
    return [("call", str(call.get("id"))) for call in calls if isinstance(call, Mapping)]
