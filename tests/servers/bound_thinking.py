"""The Messages API of a model that binds its thinking: a server that thinks, and that enforces the binding.

A block of thinking is valid only after exactly what it came after: the tools, the system text and all blocks
of messages, without cache markers. Thinking may be left out from the front, but not between two blocks, not
in the latest message of an open tool loop, and what was left out once may not come back. A request that
breaks this gets a 400, as the API answers it. If the request has the switch for it, with its beta, the server
drops the blocks that do not fit, and reports each in `input_transformations`.

    with bound_model(script) as model:
        Anthropic(base_url=model.url, api_key="none").messages.create(...)
    assert model.refused == []
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from lamina.dialects.anthropic import DIALECT
from lamina.dialects.anthropic.server import BETAS, BINDING_BETA
from tests.servers.serving import serve_http
from tests.wrapped.scripted_api import Call, Said, Thought, message_block, stream_message, write_message

THINKING = ("thinking", "redacted_thinking")
BILLING = "x-anthropic-billing-header:"
"""Begins a system block that says who pays. It differs between requests, and is no part of the prompt."""


class Refused(Exception):
    """A request that the API answers with a 400."""


class IssuedThought(NamedTuple):
    """A block of thinking that the model gave: what it came after, and the calls of the same message.

    `before` are the signatures of the thinking before it, in order. `answer` is the number of the answer. A
    client that never got an answer asks again, and the same calls have other thinking then.
    """

    prefix: str
    before: tuple[str, ...]
    calls: frozenset[str]
    answer: int


class PlacedThought(NamedTuple):
    """A block of thinking in a request: its signature, its place, and the hash of what it stands after."""

    signature: str
    path: str
    prefix: str


class ThinkingBinding:
    """All thinking that a model has given, and what became of it. `knows_switch`: it can drop blocks."""

    def __init__(self, *, knows_switch: bool = True) -> None:
        self.knows_switch = knows_switch
        self.issued: dict[str, IssuedThought] = {}
        self.dropped: set[str] = set()
        self.left_out: set[str] = set()
        self.switched: list[bool] = []
        self._answers = 0

    def check(self, request: Mapping[str, Any], betas: str = "") -> list[dict[str, str]]:
        """What is dropped from a request. Raises Refused if the API would not take it."""
        may_drop = self._read_switch(request, betas)
        placed = list(_place_thoughts(request))
        self._check_latest(request, placed)
        transformations: list[dict[str, str]] = []
        for number, thought in enumerate(placed):
            before = tuple(earlier.signature for earlier in placed[:number])
            if self._fits(thought, before):
                continue
            if not may_drop:
                raise Refused(
                    f"{thought.path}: Invalid `signature` in `thinking` block. "
                    "The block is bound to a different conversation. Remove the block, or set "
                    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                )
            self.dropped.add(thought.signature)
            transformations.append(
                {"type": "thinking_dropped", "path": thought.path, "reason": "prefix_binding_mismatch"}
            )
        self.switched.append(may_drop)
        self._note_left_out(request, placed)
        return transformations

    def issue(self, request: Mapping[str, Any], said: Said) -> Said:
        """An answer with a signature for each of its thoughts, bound to what comes before it."""
        self._answers += 1
        before = [thought.signature for thought in _place_thoughts(request)]
        calls = frozenset(one.id for one in said if isinstance(one, Call))
        chain = _hash_prefix(request)
        signed: Said = []
        for one in said:
            if isinstance(one, Thought):
                signature = f"signature{len(self.issued)}x{chain.hexdigest()[:12]}"
                self.issued[signature] = IssuedThought(chain.hexdigest(), tuple(before), calls, self._answers)
                before.append(signature)
                signed.append(Thought(one.text, signature))
            else:
                chain.update(_write_block({"role": "assistant"}, message_block(one)))
                signed.append(one)
        return signed

    def _read_switch(self, request: Mapping[str, Any], betas: str) -> bool:
        binding = (request.get("thinking") or {}).get("block_binding")
        if binding is None:
            return False
        if not self.knows_switch or BINDING_BETA not in betas.split(","):
            raise Refused("thinking.adaptive.block_binding: Extra inputs are not permitted")
        return bool(binding.get("prefix_mismatch_behavior") == "drop_block")

    def _fits(self, thought: PlacedThought, before: tuple[str, ...]) -> bool:
        issued = self.issued.get(thought.signature)
        if issued is None or thought.signature in self.left_out | self.dropped:
            return False
        is_run = issued.before[len(issued.before) - len(before) :] == before
        return is_run and len(before) <= len(issued.before) and issued.prefix == thought.prefix

    def _check_latest(self, request: Mapping[str, Any], placed: list[PlacedThought]) -> None:
        """In an open tool loop, the latest message has all the thinking that the model gave with it."""
        waiting = _read_ids(request["messages"][-1], "tool_use_id")
        if not waiting:
            return
        present = {thought.signature for thought in placed}
        by_answer: dict[int, set[str]] = {}
        for signature, issued in self.issued.items():
            if waiting <= issued.calls:
                by_answer.setdefault(issued.answer, set()).add(signature)
        if by_answer and not any(signatures <= present for signatures in by_answer.values()):
            raise Refused(
                "`thinking` or `redacted_thinking` blocks in the latest assistant message "
                "cannot be modified. These blocks must remain as they were in the original response."
            )

    def _note_left_out(self, request: Mapping[str, Any], placed: list[PlacedThought]) -> None:
        present = {thought.signature for thought in placed}
        calls = {name for message in request["messages"] for name in _read_ids(message, "id")}
        for signature, issued in self.issued.items():
            if signature not in present and not issued.calls.isdisjoint(calls):
                self.left_out.add(signature)


def _read_ids(message: Mapping[str, Any], field: str) -> set[str]:
    content = message["content"]
    if isinstance(content, str):
        return set()
    return {str(block[field]) for block in content if field in block}


def _place_thoughts(request: Mapping[str, Any]) -> Iterator[PlacedThought]:
    chain = sha256(_write_head(request))
    for index, message in enumerate(request["messages"]):
        for position, block in enumerate(_list_blocks(message)):
            if block.get("type") in THINKING:
                signature = str(block.get("signature") or block.get("data"))
                yield PlacedThought(signature, f"messages.{index}.content.{position}", chain.hexdigest())
            else:
                chain.update(_write_block(message, block))


def _hash_prefix(request: Mapping[str, Any]) -> Any:
    """The hash of a whole request: what its answer comes after."""
    chain = sha256(_write_head(request))
    for message in request["messages"]:
        for block in _list_blocks(message):
            if block.get("type") not in THINKING:
                chain.update(_write_block(message, block))
    return chain


def _write_head(request: Mapping[str, Any]) -> bytes:
    system = request.get("system") or []
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    system = [block for block in system if not str(block.get("text")).startswith(BILLING)]
    return _write([_without_marker(one) for one in [*(request.get("tools") or []), *system]])


def _list_blocks(message: Mapping[str, Any]) -> list[Any]:
    """The blocks of a message. A text is one block, as the API reads it."""
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


def _write_block(message: Mapping[str, Any], block: Any) -> bytes:
    return _write([message["role"], _without_marker(block)])


def _without_marker(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block without its cache marker. The text of a result may be a string or one block, as above."""
    plain = {name: value for name, value in block.items() if name != "cache_control"}
    content = plain.get("content")
    if isinstance(content, str):
        plain["content"] = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        plain["content"] = [_without_marker(inner) for inner in content]
    return plain


def _write(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _check_rules(request: dict[str, Any]) -> None:
    """Refuse what breaks another rule of the API."""
    for violation in DIALECT.wire.check(request):
        raise Refused(f"{violation.place}: {violation.message}")


class BoundModel:
    """What was asked of a model that binds its thinking.

    It has the requests that it took, and why it refused others. `script` says what the model answers to a
    request, with its thoughts.
    """

    def __init__(self, script: Callable[[dict[str, Any]], Said], binding: ThinkingBinding) -> None:
        self.url = ""
        self.binding = binding
        self.requests: list[dict[str, Any]] = []
        self.betas: list[str] = []
        self.refused: list[str] = []
        self._script = script

    def answer(self, request: dict[str, Any], betas: str) -> tuple[int, str, str]:
        """A status, a media type and a body."""
        try:
            _check_rules(request)
            transformations = self.binding.check(request, betas)
        except Refused as refusal:
            self.refused.append(str(refusal))
            error = {"type": "invalid_request_error", "message": str(refusal)}
            return 400, "application/json", json.dumps({"type": "error", "error": error})
        self.requests.append(request)
        self.betas.append(betas)
        said = self.binding.issue(request, self._script(request))
        size = len(json.dumps(request)) // 4
        if request.get("stream"):
            return 200, "text/event-stream", "".join(stream_message(said, size))
        answer = write_message(said, size)
        if transformations:
            answer["input_transformations"] = transformations
        return 200, "application/json", json.dumps(answer)


@contextmanager
def bound_model(
    script: Callable[[dict[str, Any]], Said], *, knows_switch: bool = True
) -> Iterator[BoundModel]:
    """A server on the loopback address for as long as the context lasts."""
    model = BoundModel(script, ThinkingBinding(knows_switch=knows_switch))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, media_type, text = model.answer(request, self.headers.get(BETAS, ""))
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with serve_http(Handler) as url:
        model.url = url
        yield model
