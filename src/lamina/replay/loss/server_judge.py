"""Judges with a server: one with `prompt_logprobs`, as vLLM has it, or llama.cpp's own.

A server with `prompt_logprobs` says in one request how likely each token of a prompt was. llama.cpp's server
does not, so it is sent the answer token by token: each request forces the next token and asks how likely it
was. Which of the two a server is, its answer to `/props` says: only llama.cpp has it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from lamina.dialects.overflow import read_overflow
from lamina.errors import BadInput
from lamina.replay.loss.port import (
    ANSWER_ROLE,
    CLOSING,
    LONGEST_ANSWER,
    OPENING,
    WINDOW,
    AnswerLoss,
    Judge,
    make_loss,
    write_message,
)
from lamina.replay.loss.rows import LossRow, Span

KEY_VARIABLE = "LAMINA_JUDGE_KEY"
"""The environment variable with the key of the server, if it wants one."""

PATIENCE = 600.0
"""Seconds that one request may take: a long prompt on a processor takes minutes."""

FORCE = 10_000.0
"""What is added to the logit of a token, so that no other can be sampled."""

QUOTED = 200
"""Characters of a refusal that an error quotes."""

NO_LOGPROBS_HINT = "use vLLM (prompt_logprobs) or llama.cpp's own server, or give a .gguf file"


def connect_judge(address: str) -> Judge:
    """The judge that fits the server at this address. A `/v1` at its end is left out."""
    server = _Server(address.rstrip("/").removesuffix("/v1"))
    properties = server.send("/props")
    if properties.status == 200 and b"default_generation_settings" in properties.body:
        return LlamaServerJudge(server)
    return PromptLogprobsJudge(server)


class _Reply(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class _Server:
    """JSON over HTTP."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._headers = {"Content-Type": "application/json"}
        key = os.environ.get(KEY_VARIABLE)
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def send(self, path: str, body: dict[str, Any] | None = None) -> _Reply:
        """What the server answers, refusals too; without a body it is a GET. BadInput if nothing answers."""
        data = None
        if body is not None:
            data = json.dumps(body).encode()
        request = Request(self.address + path, data, self._headers)  # noqa: S310 - the user's own address
        try:
            with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - as above
                return _Reply(answer.status, answer.read())
        except HTTPError as error:
            return _Reply(error.code, error.read())
        except TimeoutError:
            problem = f"the server did not answer within {PATIENCE:.0f} s"
            hint = "use a faster judge, or a smaller --window"
            raise BadInput(problem, place=self.address, hint=hint) from None
        except (OSError, HTTPException) as error:
            hint = "start the server, and give its address"
            raise BadInput(f"no server answers: {error}", place=self.address, hint=hint) from None

    def read(self, reply: _Reply, *, hint: str = "check the server") -> Any:
        """The JSON of an answer. Raises BadInput for a refusal and for anything that is not JSON."""
        if reply.status != 200:
            problem = f"the server refused with {reply.status}: {reply.text[:QUOTED]}"
            raise BadInput(problem, place=self.address, hint=hint)
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError) as error:
            problem = f"the server did not answer with JSON: {error}"
            raise BadInput(problem, place=self.address, hint=hint) from None

    def get(self, path: str) -> Any:
        """The JSON under a path."""
        return self.read(self.send(path))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON that answers a JSON body."""
        return self.read(self.send(path, body))


class LlamaServerJudge:
    """Judges with llama.cpp's server, one token of the answer at a time."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        settings = server.get("/props")["default_generation_settings"]
        self.window = int(settings["n_ctx"])
        self._message_tokens: dict[str, list[int]] = {}

    def __call__(self, rows: Iterable[LossRow]) -> Iterator[AnswerLoss]:
        """The loss of each row. A row that does not fit the server's window is left out."""
        opening = self._special_token(OPENING)
        closing = self._special_token(CLOSING)
        line_end = self._tokens("\n")
        for row in rows:
            prompt: list[int] = []
            for message in row.messages:
                prompt += [opening, *self._remembered(write_message(message)), closing, *line_end]
            prompt += [opening, *self._remembered(f"{ANSWER_ROLE}\n")]
            pieces = self._pieces(row.answer)
            answer = [token for token, _ in pieces[:LONGEST_ANSWER]]
            with_end = len(pieces) <= LONGEST_ANSWER
            if with_end:
                answer.append(closing)
            if len(prompt) + len(answer) >= self.window:
                continue
            losses = self._losses(prompt, answer)
            offsets = measure_pieces([piece for _, piece in pieces[:LONGEST_ANSWER]])
            yield make_loss(row, prompt=len(prompt), losses=losses, offsets=offsets, with_end=with_end)

    def _losses(self, prompt: list[int], answer: list[int]) -> list[float]:
        """The loss of each token of an answer, which costs one request: the server keeps the prompt."""
        losses = []
        for at, token in enumerate(answer):
            body = {
                "prompt": prompt + answer[:at],
                "n_predict": 1,
                "n_probs": 1,
                "cache_prompt": True,
                "logit_bias": [[token, FORCE]],
                "temperature": 0,
            }
            reply = self._server.post("/completion", body)
            chosen = reply["completion_probabilities"][0]
            if chosen["id"] != token:
                hint = "use a server that applies logit_bias before it samples"
                raise BadInput(
                    f"the server chose token {chosen['id']}, not {token}", place="judge", hint=hint
                )
            losses.append(-float(chosen["logprob"]))
        return losses

    def _remembered(self, text: str) -> list[int]:
        """The tokens of a text. Messages come in many rows, so they are remembered."""
        tokens = self._message_tokens.get(text)
        if tokens is None:
            tokens = self._tokens(text)
            self._message_tokens[text] = tokens
        return tokens

    def _tokens(self, text: str) -> list[int]:
        """The tokens of a text, in which names of special tokens are plain text."""
        reply = self._server.post("/tokenize", {"content": text, "parse_special": False})
        tokens: list[int] = reply["tokens"]
        return tokens

    def _pieces(self, text: str) -> list[tuple[int, bytes]]:
        """The tokens of a text, each with its bytes."""
        body = {"content": text, "parse_special": False, "with_pieces": True}
        pieces = []
        for token in self._server.post("/tokenize", body)["tokens"]:
            piece = token["piece"]
            encoded = piece.encode() if isinstance(piece, str) else bytes(piece)
            pieces.append((int(token["id"]), encoded))
        return pieces

    def _special_token(self, name: str) -> int:
        """The token of this name. Raises BadInput if the model has none."""
        tokens = self._server.post("/tokenize", {"content": name, "parse_special": True})["tokens"]
        if len(tokens) != 1:
            raise BadInput(
                f"its vocabulary has no {name}", place="judge", hint="use a model that speaks ChatML"
            )
        return int(tokens[0])


class PromptLogprobsJudge:
    """Judges with a server that reports the log-probabilities of a prompt, as vLLM does."""

    def __init__(self, server: _Server) -> None:
        """Ask about one short prompt, so that a server that cannot judge is refused at once."""
        self._server = server
        model = server.get("/v1/models")["data"][0]
        self._model = str(model["id"])
        self.window = int(model.get("max_model_len") or WINDOW)
        self._read_prompt(f"{OPENING}user\nHello.{CLOSING}\n")

    def __call__(self, rows: Iterable[LossRow]) -> Iterator[AnswerLoss]:
        """The loss of each row. A row that the server refuses as too long is left out."""
        for row in rows:
            loss = self._judge(row)
            if loss is not None:
                yield loss

    def _judge(self, row: LossRow) -> AnswerLoss | None:
        """The loss of one row; None if it is too long for the server."""
        texts = [f"{OPENING}{write_message(message)}{CLOSING}\n" for message in row.messages]
        prompt = "".join(texts) + f"{OPENING}{ANSWER_ROLE}\n"
        tokens = self._read_prompt(prompt + row.answer)
        if tokens is None:
            return None
        answer = find_answer_tokens(tokens, len(row.answer))
        judged = answer[:LONGEST_ANSWER]
        return make_loss(
            row,
            prompt=len(tokens) - len(answer) + 1,
            losses=[-logprob for _, logprob in judged],
            offsets=measure_pieces([text.encode() for text, _ in judged]),
            with_end=False,
        )

    def _read_prompt(self, prompt: str) -> list[tuple[str, float]] | None:
        """The tokens of a prompt after its first, each with its log-probability; None if it is too long."""
        body = {"model": self._model, "prompt": prompt, "max_tokens": 1, "prompt_logprobs": 0}
        reply = self._server.send("/v1/completions", body)
        if read_overflow(reply.status, reply.text) is not None:
            return None
        choice = self._server.read(reply, hint=NO_LOGPROBS_HINT)["choices"][0]
        logprobs = choice.get("prompt_logprobs")
        if not logprobs:
            problem = "the server reports no log-probabilities of a prompt"
            raise BadInput(problem, place=self._server.address, hint=NO_LOGPROBS_HINT)
        return [_only_token(each) for each in logprobs if each]


def find_answer_tokens(tokens: list[tuple[str, float]], length: int) -> list[tuple[str, float]]:
    """The tokens at the end of a prompt that have the answer's `length` characters."""
    start = len(tokens)
    while start > 0 and length > 0:
        start -= 1
        length -= len(tokens[start][0])
    return tokens[start:]


def _only_token(logprobs: dict[str, Any]) -> tuple[str, float]:
    """The text and the log-probability of the token that stands in the prompt.

    With `prompt_logprobs` 0 a server reports that token alone; some add the likeliest one after it.
    """
    chosen = next(iter(logprobs.values()))
    return str(chosen["decoded_token"]), float(chosen["logprob"])


def measure_pieces(pieces: list[bytes]) -> list[Span]:
    """Where each piece of a text stands in it, in characters.

    A character whose bytes are in several pieces belongs to the first of them: `é` in two pieces is one
    character wide in the first, and the second begins and ends after it.
    """
    spans: list[Span] = []
    start = 0
    for piece in pieces:
        # Bytes 0x80 to 0xbf go on with a character, all others begin one.
        width = sum(1 for byte in piece if byte & 0xC0 != 0x80)
        spans.append((start, start + width))
        start += width
    return spans
