"""A judge that runs llama.cpp on the processor, in this process: a small sample, without a GPU.

The server inside this process gets the prompt and one token of the answer after the other. Each request
forces the next token of the answer and asks how likely it was. llama.cpp reports that from the logits as
they were, so forcing changes no figure. Everything before the token is cached from the request before it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from bench.judging.port import (
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
from bench.judging.rows import LossRow, Span
from lamina.errors import BadInput

PATIENCE = 600.0
"""Seconds that one request may take: a long prompt on a processor takes minutes."""

FORCE = 10_000.0
"""What is added to the logit of a token, so that no other can be sampled."""


@contextmanager
def run_llama_judge(path: str, *, window: int = WINDOW) -> Iterator[Judge]:
    """A judge with the model of a GGUF file. The server stops when the context ends."""
    if not Path(path).is_file():
        raise BadInput("there is no such file", place=path, hint="give the path of a GGUF file")
    server = _start_server(path, window)
    try:
        yield LlamaJudge(server.listening_address, window)
    finally:
        del server  # its destructor stops it and waits for its threads


def _start_server(path: str, window: int) -> Any:
    try:
        import xllamacpp  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BadInput(
            "the package xllamacpp is not installed", place="judge", hint="pip install xllamacpp"
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = window
    params.n_parallel = 1
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = max((os.cpu_count() or 1) // 2, 1)  # more would wait for each other
    params.warmup = False
    params.fit_params = False
    params.verbosity = -1
    return xllamacpp.Server(params)


class LlamaJudge:
    """Judges with llama.cpp's server, one token of the answer at a time."""

    def __init__(self, address: str, window: int) -> None:
        self._address = address
        self.window = window
        self._message_tokens: dict[str, list[int]] = {}

    def __call__(self, rows: Iterable[LossRow]) -> Iterator[AnswerLoss]:
        """The loss of each row. A row that does not fit the window is left out."""
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
            reply = self._post("/completion", body)
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
        reply = self._post("/tokenize", {"content": text, "parse_special": False})
        tokens: list[int] = reply["tokens"]
        return tokens

    def _pieces(self, text: str) -> list[tuple[int, bytes]]:
        """The tokens of a text, each with its bytes."""
        body = {"content": text, "parse_special": False, "with_pieces": True}
        pieces = []
        for token in self._post("/tokenize", body)["tokens"]:
            piece = token["piece"]
            encoded = piece.encode() if isinstance(piece, str) else bytes(piece)
            pieces.append((int(token["id"]), encoded))
        return pieces

    def _special_token(self, name: str) -> int:
        """The token of this name. Raises BadInput if the model has none."""
        tokens = self._post("/tokenize", {"content": name, "parse_special": True})["tokens"]
        if len(tokens) != 1:
            raise BadInput(
                f"its vocabulary has no {name}", place="judge", hint="use a model that speaks ChatML"
            )
        return int(tokens[0])

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON that answers a JSON body."""
        headers = {"Content-Type": "application/json"}
        request = Request(self._address + path, json.dumps(body).encode(), headers)  # noqa: S310 - our own
        with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - as above
            return json.loads(answer.read())


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
