"""One conversation under one policy: each call in order, what was sent, and what of it could be seen.

The policy runs first, the caches after it: what a policy sends is the same whoever is paid for it, unless it
asks for the rules. Every check here is made apart from the policy's own account of itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.replay.message_sizes import Scales
from lamina.replay.model_calls import ModelCall, RecordedConversation
from lamina.replay.needed_names import Needs
from lamina.replay.policies.port import Message, Policy, PolicyRequest, Run, Setting

__all__ = ["Needs", "WalkStep", "walk"]


class WalkStep(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it was sent, or `failed`.

    `same` are the messages that lead the request as they led the one before it; `hidden` has the messages of
    the conversation that would have to come back for what the answer needed, with their tokens.
    """

    call: ModelCall
    sent: PolicyRequest | None
    tokens: int = 0
    same: int = 0
    needed: int = 0
    visible: int = 0
    hidden: Mapping[int, int] = {}
    invalid: bool = False
    seconds: float = 0.0
    failed: str = ""


def walk(talk: RecordedConversation, policy: Policy, setting: Setting, needs: Needs) -> list[WalkStep]:
    """Every call of a conversation, as the policy sends it."""
    run, steps = _started(policy, setting), []
    before: list[Message] = []
    at: float | None = None
    for call, terms in zip(talk.calls, needs.of, strict=True):
        idle = max(call.at - at, 0.0) if call.at is not None and at is not None else 0.0
        at = call.at if call.at is not None else at
        step = msgspec.structs.replace(_sent(talk, call, run, idle), needed=len(terms))
        if (sent := step.sent) is not None:
            step = _seen(step, sent, terms, scales=setting.scales, needs=needs, before=before)
            before = sent.messages
        steps.append(step)
    return steps


def _started(policy: Policy, setting: Setting) -> Run:
    try:
        return policy.start(setting)
    except Exception as error:  # noqa: BLE001 - as below
        failed = error

        def run(request: dict[str, Any], idle: float) -> PolicyRequest:
            del request, idle
            raise failed

        return run


def _sent(talk: RecordedConversation, call: ModelCall, run: Run, idle: float) -> WalkStep:
    request = talk.request(call)
    started = time.process_time()
    try:
        sent = run(request, idle)
    except Exception as error:  # noqa: BLE001 - anyone's code: what it raises is a call that it gave up
        return WalkStep(call=call, sent=None, failed=repr(error), seconds=time.process_time() - started)
    spent = time.process_time() - started if sent.seconds is None else sent.seconds
    return WalkStep(call=call, sent=sent, seconds=spent)


def _seen(
    step: WalkStep,
    sent: PolicyRequest,
    terms: frozenset[str],
    *,
    scales: Scales,
    needs: Needs,
    before: list[Message],
) -> WalkStep:
    weighed = [scales.message(message) for message in sent.messages]
    text = "\n".join(message.words for message in weighed)
    hidden = [term for term in terms if term not in text]
    to_recall = sorted({needs.latest(term, step.call.end) for term in hidden})
    return msgspec.structs.replace(
        step,
        tokens=scales.tool_tokens + sum(m.tokens for m in weighed),
        same=_shared(before, sent.messages),
        visible=len(terms) - len(hidden),
        invalid=scales.refused(sent.messages),
        hidden={at: needs.tokens[at] for at in to_recall},
    )


def _shared(before: list[Message], after: list[Message]) -> int:
    """How many messages lead both."""
    for at, (one, other) in enumerate(zip(before, after, strict=False)):
        if one is not other and one != other:
            return at
    return min(len(before), len(after))
