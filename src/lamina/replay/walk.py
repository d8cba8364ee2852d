"""Walks through one conversation under one policy: what was sent at each call, and what could be seen.

The policy runs first and the caches after it: what a policy sends does not depend on the cache's prices,
unless it asks for the rules. Every check here is made apart from what the policy reports of itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.caches.prefix_path import count_common_items
from lamina.replay.message_sizes import MessageSize, MessageSizes, find_group_start
from lamina.replay.model_calls import ModelCall, RecordedConversation
from lamina.replay.needed_names import NeededTerms
from lamina.replay.policies.port import Message, PolicyRequest, PolicyRun, ReplayPolicy, Setting

__all__ = ["NeededTerms", "WalkStep", "walk"]


class WalkStep(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it was sent, or `failed`.

    `same` are the messages that lead the request as they led the one before it. `hidden` has the messages of
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


class _CheckedRequest(NamedTuple):
    """A request that was checked. Most of the next one is the same, and is not measured again."""

    messages: list[Message]
    sizes: list[MessageSize]
    is_refused: bool


def walk(
    conversation: RecordedConversation, policy: ReplayPolicy, setting: Setting, needs: NeededTerms
) -> list[WalkStep]:
    """Every call of a conversation, as the policy sends it.

    The time between two calls is 0 where the records have no times.
    """
    run = _start_policy(policy, setting)
    steps = []
    previous_request = _CheckedRequest([], [], is_refused=False)
    previous_time: float | None = None
    for call, terms in zip(conversation.calls, needs.by_call, strict=True):
        idle = 0.0
        if call.at is not None:
            if previous_time is not None:
                idle = max(call.at - previous_time, 0.0)
            previous_time = call.at
        step = _send_call(conversation, call, run, idle)
        step = msgspec.structs.replace(step, needed=len(terms))
        sent = step.sent
        if sent is not None:
            checked_request, same = _check_sent(sent.messages, setting.message_sizes, previous_request)
            step = _complete_step(step, checked_request, terms, setting.message_sizes, needs)
            step = msgspec.structs.replace(step, same=same)
            previous_request = checked_request
        steps.append(step)
    return steps


def _start_policy(policy: ReplayPolicy, setting: Setting) -> PolicyRun:
    """The policy's run; if it cannot be started, a run in which every call fails with the same error."""
    try:
        return policy.start(setting)
    except Exception as error:  # noqa: BLE001 - as below
        start_error = error

        def fail(request: dict[str, Any], idle: float) -> PolicyRequest:
            del request, idle
            raise start_error

        return fail


def _send_call(conversation: RecordedConversation, call: ModelCall, run: PolicyRun, idle: float) -> WalkStep:
    """One call as the policy sends it. What the policy raises is a call that it gave up."""
    request = conversation.request(call)
    started = time.process_time()
    try:
        sent = run(request, idle)
    except Exception as error:  # noqa: BLE001 - anyone's code: what it raises is a call that it gave up
        seconds = time.process_time() - started
        return WalkStep(call=call, sent=None, failed=repr(error), seconds=seconds)
    seconds = time.process_time() - started
    if sent.seconds is not None:
        seconds = sent.seconds
    return WalkStep(call=call, sent=sent, seconds=seconds)


def _check_sent(
    messages: list[Message], message_sizes: MessageSizes, previous: _CheckedRequest
) -> tuple[_CheckedRequest, int]:
    """The checked request, and how many messages it has in common with the beginning of the last one."""
    same = count_common_items(previous.messages, messages)
    sizes = previous.sizes[:same]
    for message in messages[same:]:
        sizes.append(message_sizes.measure(message))
    # of a request that goes on from one in order only what is new is checked; the results of a call are
    # judged with it, so the last call in common counts as new
    first_unchecked = 0
    if same and not previous.is_refused:
        first_unchecked = find_group_start(messages, same - 1)
    is_refused = message_sizes.is_refused(messages[first_unchecked:])
    return _CheckedRequest(messages, sizes, is_refused), same


def _complete_step(
    step: WalkStep,
    request: _CheckedRequest,
    terms: frozenset[str],
    message_sizes: MessageSizes,
    needs: NeededTerms,
) -> WalkStep:
    """The step with what its request takes and hides."""
    text = "\n".join(size.words for size in request.sizes)
    hidden_terms = [term for term in terms if term not in text]
    # the last message that had a hidden term would have to come back
    positions_to_recall = sorted({needs.latest(term, step.call.end) for term in hidden_terms})
    return msgspec.structs.replace(
        step,
        tokens=message_sizes.tool_tokens + sum(size.tokens for size in request.sizes),
        visible=len(terms) - len(hidden_terms),
        invalid=request.is_refused,
        hidden={at: needs.tokens[at] for at in positions_to_recall},
    )
