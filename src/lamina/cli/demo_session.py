"""The session of `lamina inspect --demo`, as a gateway would have recorded it.

The client's history is made up, as that of `lamina demo` is. Its requests are fitted in a small window, so
lamina cuts it as it would cut any other, and the model recalls something that was cut. On the way the client
asks a sub-agent, the provider refuses one request, and the client changes its system text, which loses the
cache. What the cache read is simulated by its rules. No model is asked and nothing leaves the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from lamina.caches import rules_for, simulator
from lamina.cli.recording import MODEL, make_recording, split_calls
from lamina.conversations.recall_loop import (
    RecallExchange,
    RecallLoop,
    append_turns,
    place_after,
    splice_exchanges,
)
from lamina.conversations.record import Answered, ConversationRecord, CutNote, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import NO_DIGESTS, digest_log
from lamina.conversations.store import ConversationState
from lamina.core.hashing import handle
from lamina.core.values import Budget, Form, Ledger
from lamina.costs.logs.model_calls import CHAT
from lamina.diagnose.compared import weigh_request
from lamina.dialects import DIALECTS
from lamina.dialects.usage import Usage
from lamina.fitting.policy import Policy
from lamina.fitting.recalls import RECALL
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.inspector.sent_conversations import SentConversation
from lamina.models.counters import counter_for

SEED = 7
WINDOW = 32_000
TURNS = 12
FIRST_TIME = 1_790_000_000.0
SECONDS_APART = 14.0

_RESERVE = 4_096
_AGENT_TURNS = 1
_OVERLOADED = b'{"error":{"type":"overloaded_error","message":"The server is overloaded, please try again."}}'
_ADDED_LATER = " Today is Tuesday."
"""What the client adds to its system text in the middle of the session: a day is enough to lose the cache."""

_SYSTEM = "You are a careful programmer. You read before you write, and you say what you did."


def make_demo(seed: int) -> list[SentConversation]:
    """The session and the one of its sub-agent. The same seed gives the same bytes."""
    name = f"made up, seed {seed}"
    talk = _DemoTalk(name)
    calls = list(split_calls(_make_history(seed, turns=TURNS)))
    # The story: a refusal after a quarter of the session, a sub-agent after a third, a recall after the first
    # cut, and six calls later a changed system text.
    errs_at = len(calls) // 4
    asks_agent_at = len(calls) // 3
    is_recalled = False
    changes_at: int | None = None
    agent = _DemoTalk(f"{name}, reviewer", parent=f"demo:{name}")
    for number, call in enumerate(calls):
        answer = _find_answer(calls, number)
        if number == errs_at:
            talk.refuse(call)
        if number == asks_agent_at:
            agent.now = talk.now + 2.0
            for own_call, own_answer in _list_agent_calls(seed):
                agent.ask(own_call, own_answer)
        if talk.cuts == 1 and not is_recalled and not talk.has_cut_now:
            is_recalled = talk.ask_with_recall(call, answer)
            changes_at = number + 6
            continue
        if number == changes_at:
            talk.system_text = _SYSTEM + _ADDED_LATER
        talk.ask(call, answer)
    return [talk.finish(), agent.finish()]


def _make_history(seed: int, *, turns: int) -> dict[str, Any]:
    """A client's last request. lamina brings its own recall tool, so the client has none."""
    recording = make_recording(seed, turns=turns)
    tools = [tool for tool in recording["tools"] if tool["function"]["name"] != RECALL.name]
    return recording | {"tools": tools}


def _list_agent_calls(seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    calls = list(split_calls(_make_history(seed + 1, turns=_AGENT_TURNS)))
    for number, call in enumerate(calls):
        yield call, _find_answer(calls, number)


def _find_answer(calls: Sequence[dict[str, Any]], number: int) -> dict[str, Any]:
    """What the model answered: the message after a request, as the next request has it."""
    count = len(calls[number]["messages"])
    for later in calls[number + 1 :]:
        message = later["messages"][count]
        if message["role"] == "assistant":
            answer: dict[str, Any] = message
            return answer
    return {"role": "assistant", "content": "Done. The tests pass, and I have said what changed."}


class _DemoTalk:
    """One conversation while it is made up: its ledger, its record and its clock."""

    def __init__(self, name: str, *, parent: str = "") -> None:
        self.now = FIRST_TIME
        self.system_text = _SYSTEM
        self.cuts = 0
        self.has_cut_now = False
        self._name = name
        self._parent = parent
        self._dialect = DIALECTS[CHAT]
        self._counter = counter_for(MODEL)
        self._cache = simulator(rules_for(MODEL, dialect=CHAT))
        self._memo = RequestMemo()
        self._ledger = Ledger()
        self._writer = RecordWriter()
        self._record = ConversationRecord()
        self._exchanges: tuple[RecallExchange, ...] = ()
        self._count = 0
        self._whole = 0
        self._account: dict[str, int] = {}
        self._title = ""

    def ask(self, call: dict[str, Any], answer: dict[str, Any]) -> None:
        request = self._complete(call)
        sent_id, fitted, _ = self._send(request)
        self._answer(sent_id, fitted, _write_answer(answer))

    def refuse(self, call: dict[str, Any]) -> None:
        """The provider is overloaded. The client asks again later."""
        sent_id, _, _ = self._send(self._complete(call))
        answer = Answered(id=sent_id, at=self.now, status=529, first=0.4, last=0.5)
        self._add_answer(answer, _OVERLOADED)

    def ask_with_recall(self, call: dict[str, Any], answer: dict[str, Any]) -> bool:
        """The model recalls the largest thing that the cut left out, and answers then."""
        request = self._complete(call)
        digests = digest_log(self._dialect.wire.parse(request).log, NO_DIGESTS)
        sent_id, fitted, spliced = self._send(request)
        recall = _write_recall(_find_handle(fitted))
        loop = RecallLoop(self._dialect)
        turns = loop.take(self._dialect.answers.absorb(recall), fitted)
        self._answer(sent_id, fitted, recall, recalled=True)
        next_id, next_fitted, _ = self._send(request, spliced=append_turns(spliced, turns), follows=sent_id)
        final = _write_answer(answer)
        loop.take(self._dialect.answers.absorb(final), next_fitted)
        self._answer(next_id, next_fitted, final)
        place = place_after(request, digests)
        exchange = None if place is None else loop.exchange(place)
        if exchange is not None:
            self._exchanges = (*self._exchanges, exchange)
        return bool(turns)

    def finish(self) -> SentConversation:
        state = ConversationState(
            door="demo",
            dialect=CHAT,
            title=self._title,
            model=MODEL,
            ledger=self._ledger,
            exchanges=self._exchanges,
            requests=self._count,
            keep="all",
            group=f"demo:{self._name}",
            parent=self._parent,
        )
        return SentConversation(self._name, state, self._record)

    def _complete(self, call: dict[str, Any]) -> dict[str, Any]:
        """A request of the client with its system text."""
        messages = [message for message in call["messages"] if message["role"] != "system"]
        return {**call, "messages": [{"role": "system", "content": self.system_text}, *messages]}

    def _send(
        self, request: dict[str, Any], *, spliced: Any = None, follows: str = ""
    ) -> tuple[str, Fitted, Any]:
        self.now += SECONDS_APART
        if spliced is None:
            digests = digest_log(self._dialect.wire.parse(request).log, NO_DIGESTS)
            spliced = splice_exchanges(request, self._exchanges, digests)
        policy = Policy(budget=Budget(window=WINDOW, reserve=_RESERVE), recall="tool")
        fitted = fit_request(
            spliced, dialect=self._dialect, policy=policy, ledger=self._ledger, memo=self._memo
        )
        self._ledger = fitted.ledger
        note = fitted.envelope.cut
        cut = None
        if note is not None and note.lowered > 0:
            self.cuts += 1
            cut = CutNote.of(note)
        self.has_cut_now = cut is not None
        sent_id = f"request-{self._count}"
        self._count += 1
        whole = self._count_tokens(request)
        self._account = {"full": whole, "new": whole - self._whole}
        self._whole = whole
        body = msgspec.json.encode(fitted.request)
        client_body: bytes | None = msgspec.json.encode(request)
        if client_body == body:  # a record keeps the same bytes once
            client_body = None
        self._title = self._title or _find_title(request)
        self._writer.add_sent(
            SentRequest(
                id=sent_id,
                at=self.now,
                door="demo",
                dialect=CHAT,
                model=MODEL,
                upstream="made up",
                tokens=fitted.envelope.tokens,
                window=WINDOW,
                epoch=len(fitted.ledger.cuts),
                cut=cut,
                size=len(body),
                follows=follows,
            ),
            body=body,
            came=client_body,
            ledger=fitted.ledger,
        )
        self._save()
        return sent_id, fitted, spliced

    def _answer(
        self, sent_id: str, fitted: Fitted, answer: dict[str, Any], *, recalled: bool = False
    ) -> None:
        """The answer, with the usage that the rules of the model's cache give."""
        weighed = weigh_request(fitted.request, dialect=self._dialect, counter=self._counter)
        tally = self._cache.send(weighed.counted_stream, at=self.now)
        tokens = tally.read + tally.written + tally.uncached
        body = msgspec.json.encode(answer)
        output = self._counter.count(body.decode())
        self._add_answer(
            Answered(
                id=sent_id,
                at=self.now + 4.0,
                status=200,
                first=0.6,
                last=round(1.0 + output / 80, 2),
                content_type="application/json",
                headers={"x-request-id": f"req_{self._count:04}"},
                usage=Usage(input=tokens, cached=tally.read, output=output),
                account={**self._account, "counted": tokens, "gap": SECONDS_APART},
                stop=(answer["choices"][0]["finish_reason"],),
                recalled=recalled,
            ),
            body,
        )

    def _count_tokens(self, request: dict[str, Any]) -> int:
        """The size of a request as the client wrote it: what it would be without lamina."""
        weighed = weigh_request(request, dialect=self._dialect, counter=self._counter)
        return sum(block.tokens for block in weighed.counted_stream.blocks)

    def _add_answer(self, answer: Answered, body: bytes) -> None:
        self._writer.add_answer(answer, body=body)
        self._save()

    def _save(self) -> None:
        """Make the records of what happened, as a store would get them, and read them again."""
        self._record.read(self._writer.encode())
        self._writer.saved()


def _write_answer(message: dict[str, Any]) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {"id": "chatcmpl-demo", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}


def _write_recall(key: str) -> dict[str, Any]:
    function = {"name": RECALL.name, "arguments": msgspec.json.encode({"key": key}).decode()}
    call = {"id": "call_recall", "type": "function", "function": function}
    return _write_answer({"role": "assistant", "content": None, "tool_calls": [call]})


def _find_handle(fitted: Fitted) -> str:
    """The handle of the largest thing that this request leaves out, as the request shows it."""
    stubs = [entry for entry in fitted.envelope.entries if entry.form is Form.STUB]
    stubs = [entry for entry in stubs if not entry.segment.is_own]
    if not stubs:
        return fitted.ledger.folds[-1].key
    return handle(max(stubs, key=lambda entry: len(str(entry.segment.parts))).content)


def _find_title(request: dict[str, Any]) -> str:
    """The user's first words, without what is attached."""
    for message in request["messages"]:
        if message["role"] != "user":
            continue
        content = message["content"]
        text = content if isinstance(content, str) else content[-1].get("text", "")
        return re.sub(r"\s+", " ", text)[:120]
    return ""
