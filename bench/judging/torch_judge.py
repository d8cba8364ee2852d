"""A judge that runs a model with torch and transformers: the one for a GPU and for thousands of rows.

The model is a folder or name that transformers can load, or a GGUF file, which it unpacks to half precision.
Only the logits of the answer are computed, and every message is turned into tokens once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.judging.port import (
    ANSWER_ROLE,
    CLOSING,
    LONGEST_ANSWER,
    OPENING,
    WINDOW,
    AnswerLoss,
    make_loss,
    write_message,
)
from bench.judging.rows import ChatText, LossRow
from lamina.errors import BadInput


class TorchJudge:
    """Judges with the model at `path`, on a GPU if there is one."""

    def __init__(self, path: str, *, window: int = WINDOW) -> None:
        self._torch = _import("torch")
        transformers = _import("transformers")
        source, options = _locate(path)
        self._tokenizer = _load_tokenizer(transformers, source, options)
        # Text that looks like a special token is text.
        self._tokenizer.backend_tokenizer.encode_special_tokens = True
        self._device = "cuda" if self._torch.cuda.is_available() else "cpu"
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=self._dtype(), **options)
        self._model = model.to(self._device).eval()
        self.window = window
        self._opening = self._special_token(OPENING)
        self._closing = self._special_token(CLOSING)
        self._line_end = self._encode("\n")
        self._message_tokens: dict[ChatText, list[int]] = {}

    def __call__(self, rows: Iterable[LossRow]) -> Iterator[AnswerLoss]:
        for row in rows:
            loss = self._judge(row)
            if loss is not None:
                yield loss

    def _judge(self, row: LossRow) -> AnswerLoss | None:
        prompt: list[int] = []
        for message in row.messages:
            prompt += self._tokens_of(message)
        prompt += [self._opening, *self._encode(f"{ANSWER_ROLE}\n")]
        encoded = self._tokenizer(row.answer, add_special_tokens=False, return_offsets_mapping=True)
        answer = encoded["input_ids"][:LONGEST_ANSWER]
        offsets = [(start, end) for start, end in encoded["offset_mapping"][:LONGEST_ANSWER]]
        with_end = len(encoded["input_ids"]) <= LONGEST_ANSWER
        if with_end:
            answer = [*answer, self._closing]
        if len(prompt) + len(answer) > self.window:
            return None
        losses = self._losses(prompt, answer)
        return make_loss(row, prompt=len(prompt), losses=losses, offsets=offsets, with_end=with_end)

    def _losses(self, prompt: list[int], answer: list[int]) -> list[float]:
        """The loss of each token of the answer. The logits at a token predict the next one."""
        torch = self._torch
        tokens = torch.tensor([prompt + answer], device=self._device)
        with torch.inference_mode():
            output = self._model(input_ids=tokens, use_cache=False, logits_to_keep=len(answer) + 1)
            logits = output.logits[0, :-1].float()
            losses = torch.nn.functional.cross_entropy(logits, tokens[0, len(prompt) :], reduction="none")
        return [float(loss) for loss in losses.cpu()]

    def _tokens_of(self, message: ChatText) -> list[int]:
        tokens = self._message_tokens.get(message)
        if tokens is None:
            tokens = [self._opening, *self._encode(write_message(message)), self._closing, *self._line_end]
            self._message_tokens[message] = tokens
        return tokens

    def _encode(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def _special_token(self, name: str) -> int:
        token = self._tokenizer.convert_tokens_to_ids(name)
        if not isinstance(token, int) or token == self._tokenizer.unk_token_id:
            raise BadInput(
                f"its vocabulary has no {name}", place="judge", hint="use a model that speaks ChatML"
            )
        return token

    def _dtype(self) -> Any:
        if self._device == "cuda":
            return self._torch.bfloat16
        return self._torch.float32


def _load_tokenizer(transformers: Any, source: str, options: dict[str, str]) -> Any:
    """The model's tokenizer. A tokenizer.json beside a GGUF file is read in its place: that is quicker."""
    if Path(source, "tokenizer.json").is_file():
        return transformers.AutoTokenizer.from_pretrained(source)
    return transformers.AutoTokenizer.from_pretrained(source, **options)


def _locate(path: str) -> tuple[str, dict[str, str]]:
    """Where transformers finds a model: a GGUF file by its folder and name, anything else as it is."""
    file = Path(path)
    if file.suffix == ".gguf":
        return str(file.parent), {"gguf_file": file.name}
    return path, {}


def _import(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        hint = "install torch and transformers, and gguf for a GGUF file"
        raise BadInput(f"the package {name} is not installed", place="judge", hint=hint) from error
