"""A talk as a door of lamina has it: a client that grows its history, lamina that fits it, an upstream.

Everything is real but the network and the model. Requests are fitted, cut, refused and sent again, recalls
are answered and put back, and the record is written into a real store. The upstream keeps what it received.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import pytest

from lamina.conversations.recall_loop import (
    RecallExchange,
    RecallLoop,
    append_turns,
    place_after,
    splice_exchanges,
)
from lamina.conversations.record import Answered, CutNote, SentRequest, digest_body
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import NO_DIGESTS, digest_log
from lamina.conversations.store import ConversationState, conversation_place
from lamina.core.values import Budget, Ledger
from lamina.dialects import DIALECTS, Usage
from lamina.fitting import Fitted, Policy, fit_request
from lamina.stores import Store, open_store

_Value = TypeVar("_Value")

WORKSPACE = "default"

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}


def choose_quick(*names: str) -> list[Any]:
    """Every dialect as a parameter of a test. A quick run tries these; another test may try the others."""
    return [
        pytest.param(name, marks=() if name in names else pytest.mark.thorough) for name in sorted(MODELS)
    ]


_DIGEST_KEY = re.compile(rb"recall=[^a-z]*([a-z0-9-]+)")


class StoreAsker:
    """Opens a store for each question, as `lamina inspect` does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, operation: Callable[[Store], Awaitable[_Value]], /) -> _Value:
        async def run() -> _Value:
            async with open_store(str(self._path)) as store:
                return await operation(store)

        return anyio.run(run)


class Received(msgspec.Struct, kw_only=True):
    """A request as the upstream received it, and what it answered."""

    body: bytes
    model: str
    usage: Usage | None = None
    status: int = 200


class RecordedTalk:
    """One conversation. `received` is what the upstream got, in order; `texts` what the client has said."""

    def __init__(
        self,
        dialect: str,
        *,
        name: str = "talk",
        window: int = 3_000,
        keep: str = "all",
    ) -> None:
        self.dialect = DIALECTS[dialect]
        self.model = MODELS[dialect]
        self.name = name
        self.received: list[Received] = []
        self.texts: list[str] = []
        self.turns: list[dict[str, Any]] = []
        self.writer = RecordWriter()
        self.cuts = 0
        self._keep = keep
        self._window = window
        self._ledger = Ledger()
        self._usage: Usage | None = None
        self._exchanges: tuple[RecallExchange, ...] = ()
        self._now = 1_790_000_000.0
        self._previous = b""

    def say(self, text: str, *, answer: str = "Done.", changed: tuple[bytes, bytes] = (b"", b"")) -> None:
        """The user says something, and the model answers. `changed`: something else changes what is sent."""
        self._add_user(text)
        sent_id, _, _ = self._send(self.client_request(), changed=changed)
        self._answer(sent_id, self._write_answer(answer))
        self._add_answer(answer)

    def repeat(self) -> None:
        """The client sends its last request once more, and gets the same answer."""
        request = self.client_request(self.turns[:-1])
        sent_id, _, _ = self._send(request)
        self._answer(sent_id, self._write_answer("Done again."))

    def say_refused(self, text: str) -> None:
        """The upstream refuses a request as too long, and lamina sends a shorter one."""
        self._add_user(text)
        answered_cuts = self.cuts
        refused_id, _, _ = self._send(self.client_request())
        self.cuts = answered_cuts  # a cut that no model has seen is none
        body = b'{"error":{"type":"invalid_request_error","message":"prompt is too long"}}'
        self._receive_answer(refused_id, Answered(id=refused_id, at=self._now, status=400), body, None)
        self._window = self._window * 2 // 3
        sent_id, _, _ = self._send(self.client_request(), follows=refused_id, why="it was too long")
        self._answer(sent_id, self._write_answer("Shorter."))
        self._add_answer("Shorter.")

    def say_recalled(self, text: str, *, answer: str = "I read it again.") -> None:
        """The model recalls something that was lowered before it answers. The client does not see that."""
        self._say_with_own_call(text, answer, "recall", {})

    def _say_with_own_call(self, text: str, answer: str, tool: str, arguments: dict[str, str]) -> None:
        self._add_user(text)
        request = self.client_request()
        digests = digest_log(self.dialect.wire.parse(request).log, NO_DIGESTS)
        sent_id, fitted, spliced = self._send(request)
        if tool == "recall":
            arguments = {"key": _DIGEST_KEY.findall(self.received[-1].body)[0].decode()}
        loop = RecallLoop(self.dialect)
        recall = self._write_call(tool, arguments)
        turns = loop.take(self.dialect.answers.absorb(recall), fitted)
        assert turns
        self._answer(sent_id, recall, recalled=True)
        body = append_turns(spliced, turns)
        next_id, _, _ = self._send(request, body=body, follows=sent_id)
        final = self._write_answer(answer)
        assert not loop.take(self.dialect.answers.absorb(final), fitted)
        self._answer(next_id, final)
        place = place_after(request, digests)
        assert place is not None
        exchange = loop.exchange(place)
        assert exchange is not None
        self._exchanges = (*self._exchanges, exchange)
        self._add_answer(answer)

    def say_unanswered(self, text: str) -> None:
        """The process ends while a request is in flight."""
        self._add_user(text)
        self._send(self.client_request())

    def client_request(self, turns: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """A request as the client writes it."""
        turns = list(self.turns if turns is None else turns)
        system = "You work on the parcels of a post office, and say what you do."
        match self.dialect.name:
            case "anthropic":
                return {"model": self.model, "max_tokens": 200, "system": system, "messages": turns}
            case "openai_chat":
                return {"model": self.model, "messages": [{"role": "system", "content": system}, *turns]}
            case "openai_responses":
                return {"model": self.model, "instructions": system, "input": turns}
            case _:
                return {"systemInstruction": {"parts": [{"text": system}]}, "contents": turns}

    def state(self) -> ConversationState:
        return ConversationState(
            door="gateway",
            dialect=self.dialect.name,
            title=self.texts[0][:120] if self._keep == "all" else "",
            model=self.model,
            ledger=self._ledger,
            exchanges=self._exchanges,
            requests=len(self.received),
            keep=self._keep,
        )

    async def save(self, store: Store) -> None:
        """Write what happened since the last time into a store."""
        where = conversation_place(WORKSPACE, self.name)
        page = await store.read(where, last=0)
        records = self.writer.encode()
        await store.append(where, records, was=page.head.state, state=self.state().encode())
        self.writer.saved()

    def _add_user(self, text: str) -> None:
        self._now += 20
        self.texts.append(text)
        if self.dialect.name == "gemini":
            self.turns.append({"role": "user", "parts": [{"text": text}]})
        else:
            self.turns.append({"role": "user", "content": text})

    def _add_answer(self, text: str) -> None:
        match self.dialect.name:
            case "gemini":
                self.turns.append({"role": "model", "parts": [{"text": text}]})
            case "anthropic":
                self.turns.append({"role": "assistant", "content": [{"type": "text", "text": text}]})
            case _:
                self.turns.append({"role": "assistant", "content": text})

    def _send(
        self,
        request: dict[str, Any],
        *,
        body: Any = None,
        follows: str = "",
        why: str = "",
        changed: tuple[bytes, bytes] = (b"", b""),
    ) -> tuple[str, Fitted, Any]:
        """Fit a request and send it. Returns its id, what was fitted, and the request with its recalls."""
        self._now += 1
        spliced = body
        if spliced is None:
            digests = digest_log(self.dialect.wire.parse(request).log, NO_DIGESTS)
            spliced = splice_exchanges(request, self._exchanges, digests)
        fitted = fit_request(
            spliced,
            dialect=self.dialect,
            policy=Policy(
                budget=Budget(window=self._window, reserve=200),
                recall="tool",
            ),
            ledger=self._ledger,
            usage=self._usage,
        )
        sent_body = msgspec.json.encode(fitted.request).replace(*changed)
        came = msgspec.json.encode(request)
        cut = None
        if fitted.envelope.cut is not None:
            self.cuts += 1
            envelope = fitted.envelope
            note = fitted.envelope.cut
            cut = CutNote(number=note.number, reason=note.reason, after=envelope.tokens, lowered=note.lowered)
        sent_id = f"r{len(self.received)}"
        keeps = self._keep == "all"
        self.writer.add_sent(
            SentRequest(
                id=sent_id,
                at=self._now,
                door="gateway",
                dialect=self.dialect.name,
                model=self.model,
                upstream="test",
                tokens=fitted.envelope.tokens,
                window=self._window,
                epoch=len(fitted.ledger.cuts),
                cut=cut,
                size=len(sent_body),
                digest=digest_body(sent_body),
                follows=follows,
                why=why,
            ),
            body=sent_body if keeps else None,
            came=came if keeps and came != sent_body else None,
            ledger=fitted.ledger,
        )
        self._ledger = fitted.ledger
        self.received.append(Received(body=sent_body, model=self.model))
        return sent_id, fitted, spliced

    def _answer(self, sent_id: str, answer: dict[str, Any], *, recalled: bool = False) -> None:
        received = self.received[-1]
        shared = _count_shared(self._previous, received.body)
        self._previous = received.body
        size = len(received.body) // 4
        usage = Usage(
            input=size, cached=shared // 4, written=(size - shared // 4) // 2, output=len(str(answer)) // 4
        )
        if self.dialect.name != "anthropic":
            usage = msgspec.structs.replace(usage, written=0)
        facts = Answered(
            id=sent_id,
            at=self._now + 0.5,
            status=200,
            content_type="application/json",
            usage=usage,
            recalled=recalled,
        )
        self._usage = usage
        self._receive_answer(sent_id, facts, msgspec.json.encode(answer), usage)

    def _receive_answer(self, sent_id: str, facts: Answered, body: bytes, usage: Usage | None) -> None:
        assert sent_id == facts.id
        self.received[-1].usage = usage
        self.received[-1].status = facts.status
        self.writer.add_answer(facts, body=body if self._keep == "all" else None)

    def _write_answer(self, text: str) -> dict[str, Any]:
        match self.dialect.name:
            case "anthropic":
                content = [{"type": "text", "text": text}]
                return {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}
            case "openai_chat":
                message = {"role": "assistant", "content": text}
                return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            case "openai_responses":
                said: list[Any] = [{"type": "output_text", "text": text, "annotations": []}]
                item = {"type": "message", "id": "msg_1", "role": "assistant", "content": said}
                return {"id": "resp_1", "object": "response", "status": "completed", "output": [item]}
            case _:
                turn = {"role": "model", "parts": [{"text": text}]}
                return {"candidates": [{"content": turn, "finishReason": "STOP"}]}

    def _write_call(self, tool: str, arguments: dict[str, str]) -> dict[str, Any]:
        call_id = f"call_{len(self.received)}"
        text = msgspec.json.encode(arguments).decode()
        match self.dialect.name:
            case "anthropic":
                block = {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
                return {"type": "message", "role": "assistant", "content": [block], "stop_reason": "tool_use"}
            case "openai_chat":
                function = {"name": tool, "arguments": text}
                calls = [{"id": call_id, "type": "function", "function": function}]
                message = {"role": "assistant", "content": None, "tool_calls": calls}
                return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
            case "openai_responses":
                item = {
                    "type": "function_call",
                    "id": "fc_1",
                    "call_id": call_id,
                    "name": tool,
                    "arguments": text,
                }
                return {"id": "resp_2", "object": "response", "status": "completed", "output": [item]}
            case _:
                part = {"functionCall": {"name": tool, "args": arguments}}
                content = {"role": "model", "parts": [part]}
                return {"candidates": [{"content": content, "finishReason": "STOP"}]}


def _count_shared(before: bytes, after: bytes) -> int:
    """How many bytes two requests have in common at their beginning."""
    length = min(len(before), len(after))
    for at in range(length):
        if before[at] != after[at]:
            return at
    return length


def write_long_talk(dialect: str, *, name: str = "talk", keep: str = "all") -> RecordedTalk:
    """A talk with cuts, a refused request, recalls, equal requests repeated, and one in flight at its end."""
    talk = RecordedTalk(dialect, name=name, keep=keep)
    for number in range(9):
        talk.say(make_text(number), answer=f"Parcel {number} is on its way.")
    talk.say_recalled(make_text(20))
    talk.say(make_text(21))
    talk.repeat()
    talk.repeat()
    talk.say_refused(make_text(22))
    talk.say(make_text(23))
    talk.say_recalled(make_text(24))
    talk.say(make_text(25))
    talk.say_unanswered("And where is it now?")
    return talk


def make_text(number: int) -> str:
    """A question of a few hundred tokens that no other has a line in common with."""
    offices = range(number * 100, number * 100 + 28)
    lines = [f"Parcel {number} stopped at office {office} for a while." for office in offices]
    return "\n".join([f"Where is parcel {number}?", *lines])
