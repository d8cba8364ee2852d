"""What a judge is: it takes rows and says how likely each answer was after its messages.

A judge reads the messages in ChatML, the format of Qwen and many other open models. It judges at most the
first `LONGEST_ANSWER` tokens of an answer. The sum of a loss is in nats, over the tokens of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from bench.judging.rows import ChatText, LossRow, Span, overlaps

LONGEST_ANSWER = 400
"""Tokens of an answer that are judged."""

OPENING, CLOSING = "<|im_start|>", "<|im_end|>"
"""The special tokens of ChatML, around each message."""

ANSWER_ROLE = "assistant"

WINDOW = 32_768
"""Tokens that a judge reads at once, unless its server says otherwise."""


class AnswerLoss(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge says of one row.

    `prompt` are the tokens before the answer, `tokens` those of the answer that were judged. `needed` are
    those among them that stood in the conversation before. `loss` and `needed_loss` are sums over them.
    """

    session: str
    call: int
    policy: str
    window: int
    prompt: int
    tokens: int
    loss: float
    needed: int
    needed_loss: float


class Judge(Protocol):
    """Judges rows one after the other. A row that does not fit its window is left out."""

    @property
    def window(self) -> int:
        """The most tokens that a prompt and its answer may have together."""

    def __call__(self, rows: Iterable[LossRow]) -> Iterator[AnswerLoss]:
        """The loss of each row that fits."""


def write_message(message: ChatText) -> str:
    """What stands between the two special tokens of a message."""
    return f"{message.role}\n{message.text}"


def make_loss(
    row: LossRow, *, prompt: int, losses: list[float], offsets: list[Span], with_end: bool
) -> AnswerLoss:
    """Add up the losses of an answer's tokens. `offsets` says where each stands in the answer.

    With `with_end`, one loss more than offsets is that of the token that ends the answer. It is no word of
    the answer, so it counts among all tokens and never among the needed ones.
    """
    if len(losses) != len(offsets) + with_end:
        raise ValueError(f"{len(losses)} losses for {len(offsets)} tokens of an answer")
    needed = 0
    needed_loss = 0.0
    for loss, (start, end) in zip(losses, offsets, strict=False):
        if overlaps(start, end, row.needed):
            needed += 1
            needed_loss += loss
    return AnswerLoss(
        session=row.session,
        call=row.call,
        policy=row.policy,
        window=row.window,
        prompt=prompt,
        tokens=len(losses),
        loss=sum(losses),
        needed=needed,
        needed_loss=needed_loss,
    )
