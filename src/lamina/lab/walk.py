"""One conversation under one policy: each call in order, what was sent, and what of it could be seen.

The policy runs first, the caches after it: what a policy sends is the same whoever is paid for it, unless it
asks for the rules. Every check here is made apart from the policy's own account of itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgspec

from lamina.dialects import DIALECTS
from lamina.errors import LaminaError
from lamina.lab.asked import CHAT, Asked, Conversation
from lamina.lab.needed import needed
from lamina.lab.policies.port import Policy, Run, Sent, Setting
from lamina.lab.weighing import Scales


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it was sent, or `failed`. `hidden` are the tokens of each message that its answer misses."""

    call: Asked
    sent: Sent | None
    tokens: int = 0
    same: int = 0
    needed: int = 0
    visible: int = 0
    hidden: tuple[int, ...] = ()
    invalid: bool = False
    seconds: float = 0.0
    failed: str = ""


class Needs:
    """What each call's answer took from what stood before it; the same for every policy."""

    def __init__(self, talk: Conversation, scales: Scales) -> None:
        self.words = [scales.message(message).words for message in talk.messages]
        self.of = [needed(call.answer, "\n".join(self.words[: call.end])) for call in talk.calls]

    def latest(self, term: str, end: int) -> int:
        """The last message before `end` that has a term."""
        return next(at for at in range(end - 1, -1, -1) if term in self.words[at])


def walk(talk: Conversation, policy: Policy, setting: Setting, needs: Needs) -> list[Step]:
    """Every call of a conversation, as the policy sends it."""
    run, steps = _started(policy, setting), []
    before: list[dict[str, Any]] = []
    at: float | None = None
    for call, terms in zip(talk.calls, needs.of, strict=True):
        idle = max(call.at - at, 0.0) if call.at is not None and at is not None else 0.0
        at = call.at if call.at is not None else at
        step = _sent(talk, call, run, idle)
        if (sent := step.sent) is not None:
            step = _seen(step, sent, terms, scales=setting.scales, needs=needs, before=before)
            before = sent.messages
        steps.append(step)
    return steps


def _started(policy: Policy, setting: Setting) -> Run:
    try:
        return policy.start(setting)
    except LaminaError as error:
        failed = error

        def run(request: dict[str, Any], idle: float) -> Sent:
            del request, idle
            raise failed

        return run


def _sent(talk: Conversation, call: Asked, run: Run, idle: float) -> Step:
    request = talk.request(call)
    started = time.process_time()
    try:
        sent = run(request, idle)
    except LaminaError as error:
        return Step(call=call, sent=None, failed=str(error), seconds=time.process_time() - started)
    spent = time.process_time() - started if sent.seconds is None else sent.seconds
    return Step(call=call, sent=sent, seconds=spent)


def _seen(
    step: Step, sent: Sent, terms: frozenset[str], *, scales: Scales, needs: Needs, before: list[dict[str, Any]]
) -> Step:  # fmt: skip
    weighed = [scales.message(message) for message in sent.messages]
    text = "\n".join(message.words for message in weighed)
    hidden = [term for term in terms if term not in text]
    to_recall = {needs.latest(term, step.call.end) for term in hidden}
    pairs = zip(before, sent.messages, strict=False)
    return msgspec.structs.replace(
        step, tokens=scales.tool_tokens + sum(m.tokens for m in weighed), needed=len(terms),
        same=sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)),
        visible=len(terms) - len(hidden), invalid=bool(_faults(sent)),
        hidden=tuple(scales.counter.count(needs.words[at]) for at in sorted(to_recall)),
    )  # fmt: skip


def _faults(sent: Sent) -> Sequence[object]:
    return DIALECTS[CHAT].check({"model": "gpt-5.5", "messages": sent.messages})
