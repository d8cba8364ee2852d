"""Walks through one conversation under one policy: what was sent at each call, and what could be seen.

The policy runs first and the caches after it: what a policy sends does not depend on the cache's prices,
unless it asks for the rules. Every check here is made apart from what the policy reports of itself.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate, chain
from typing import Any, NamedTuple

import msgspec

from bench.lab.port import Message, PolicyRequest, PolicyRun, ReplayPolicy, Setting
from lamina.caches.prefix_path import count_common_items
from lamina.costs.logs.message_sizes import MessageSize, MessageSizes, find_group_start
from lamina.costs.logs.model_calls import ModelCall, RecordedConversation

__all__ = ["NeededTerms", "WalkStep", "walk"]

# `src/parse_1.py` in "see src/parse_1.py."; the full stop after it is not part of the match.
_RUN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./\\~-]*[A-Za-z0-9_])?")

# `no such file` in 'it says "no such file" again', with one of the three quotation marks.
_QUOTED = re.compile(r"\"([^\"\n\\]{5,80})\"|'([^'\n\\]{5,80})'|`([^`\n\\]{4,80})`")

# What tells a name from a word: `a_b` and `a/b`, `readFile`, `parse.py`, `404`, `HTTP`, `E4`, `3d`.
_TELLING = re.compile(
    r"[A-Za-z0-9][_/][A-Za-z0-9]|[a-z0-9][A-Z]|[A-Za-z0-9]\.[A-Za-z]|\d{3}|[A-Z]{4}|[A-Za-z]\d|\d[A-Za-z]"
)
SHORTEST, LONGEST = 4, 120


def find_terms(answer: str) -> frozenset[str]:
    """The paths, identifiers, numbers and quoted strings of an answer.

    In `see src/a.py, line 404: "no such file"` they are `src/a.py`, `404` and `no such file`. A plain word
    such as `line` is none: a model may have made it up.
    """
    terms = set()
    for run in _RUN.findall(answer):
        has_length = SHORTEST <= len(run) <= LONGEST
        if (has_length or run.isdigit()) and _TELLING.search(run):
            terms.add(run)
    for quoted in chain.from_iterable(_QUOTED.findall(answer)):
        terms.add(quoted.strip())
    return frozenset(terms - {""})


class NeededTerms:
    """What each call's answer took from what stood before it. It is the same for every policy.

    `by_call` has the terms of each call. No term goes over the end of a line, so that all messages can be
    searched as one text, once for each term.
    """

    def __init__(self, conversation: RecordedConversation, message_sizes: MessageSizes) -> None:
        """Join the words of all messages to one text, in which `_starts` has the beginning of each.

        A term is looked for once in the whole text. The position of its first place then says from which
        message on it can be seen.
        """
        sizes = [message_sizes.measure(message) for message in conversation.messages]
        self.tokens = [size.tokens for size in sizes]
        self._text = "\n".join(size.words for size in sizes)
        self._starts = list(accumulate((len(size.words) + 1 for size in sizes), initial=0))
        self._first_places: dict[str, int] = {}
        self.by_call = [frozenset(self._find_needed(call)) for call in conversation.calls]

    def latest(self, term: str, end: int) -> int:
        """The last message before `end` that has a term. One of them must have it.

        All messages are one text, and `_starts` has where each begins.
        """
        place = self._text.rfind(term, 0, self._starts[end])
        return bisect_right(self._starts, place) - 1

    def _find_needed(self, call: ModelCall) -> Iterator[str]:
        """The terms of an answer that stood in a message before it.

        A term that stands nowhere before is the model's own.
        """
        for term in find_terms(call.answer):
            if 0 <= self._first_place(term) < self._starts[call.end]:
                yield term

    def _first_place(self, term: str) -> int:
        """Where a term stands first in the whole text; -1 if it does not."""
        place = self._first_places.get(term)
        if place is None:
            place = self._text.find(term)
            self._first_places[term] = place
        return place


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
