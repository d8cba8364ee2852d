"""Chooses which answers are judged, and makes what each policy would have sent before them.

A policy runs over the whole conversation, call by call, so that its cuts come where they would have come. Of
the calls only a few are judged: those whose full history still fits the model that judges, spread over the
conversation. What the policy cost on the way is known too, so that policies can be compared at equal cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.judging.rows import ChatText, LossRow, find_spans, to_chat_text
from lamina.caches import CacheRules, all_rules, rules_for
from lamina.models.counters import counter_for
from lamina.replay.account_sums import OWN_RULES
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import ModelCall, RecordedConversation, read_conversation
from lamina.replay.needed_names import NeededTerms
from lamina.replay.outcomes import evaluate_walk
from lamina.replay.policies import find_policy
from lamina.replay.policies.port import make_setting
from lamina.replay.values import ReplayOutcome, Trace
from lamina.replay.walk import WalkStep, walk

FULL = "none"
"""The policy that sends everything: the line from which losses are measured."""


class LossSampling(msgspec.Struct, frozen=True, kw_only=True):
    """What is sampled of each session.

    An answer may be judged if everything before it takes between `least` and `most` tokens, as `count_as`
    counts them. `answers` is the most that one session gives. `rules` are those of the cache that says what
    a policy costs; `OWN_RULES` are those of each session's model.
    """

    policies: tuple[str, ...]
    windows: tuple[int, ...]
    least: int = 12_500
    most: int = 31_000
    answers: int = 3
    count_as: str = "qwen2.5-coder"
    rules: str = "anthropic"


class SampledSession(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one session, and what each policy took up to the last of the answers."""

    rows: tuple[LossRow, ...] = ()
    outcomes: tuple[ReplayOutcome, ...] = ()


def sample_session(trace: Trace, sampling: LossSampling) -> SampledSession:
    """What each policy sends before the sampled answers of a session; nothing if no answer can be judged."""
    conversation = read_conversation(trace)
    message_sizes = MessageSizes(counter_for(sampling.count_as), [])
    needs = NeededTerms(conversation, message_sizes)
    chosen = _choose_calls(conversation, message_sizes, needs, sampling)
    if not chosen:
        return SampledSession()
    conversation = _end_after(conversation, chosen[-1])
    needs = NeededTerms(conversation, message_sizes)
    answers = [_read_answer(conversation, call, needs) for call in chosen]
    rows: list[LossRow] = []
    outcomes: list[ReplayOutcome] = []
    for answer in answers:
        messages = conversation.messages[: conversation.calls[answer.call].end]
        rows.append(_make_row(answer, FULL, 0, messages))
    for window in sampling.windows:
        setting = make_setting(window, message_sizes, _choose_rules(trace, sampling.rules))
        for name in sampling.policies:
            policy = find_policy(name)
            steps = walk(conversation, policy, setting, needs)
            outcomes.append(evaluate_walk(trace, policy, setting, steps))
            rows += _sent_rows(answers, policy.name, window, steps)
    return SampledSession(rows=tuple(rows), outcomes=tuple(outcomes))


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that will be judged."""

    session: str
    call: int
    text: str
    needed: tuple[tuple[int, int], ...]


def _choose_calls(
    conversation: RecordedConversation,
    message_sizes: MessageSizes,
    needs: NeededTerms,
    sampling: LossSampling,
) -> list[int]:
    """The numbers of the calls to judge, spread evenly over those that may be.

    A call may be judged if its request is neither too short nor too long, and its answer needs something. Of
    ten calls, two answers are the third and the eighth.
    """
    candidates: list[int] = []
    tokens = 0
    start = 0
    for number, call in enumerate(conversation.calls):
        tokens += sum(
            message_sizes.measure(message).tokens for message in conversation.messages[start : call.end]
        )
        start = call.end
        if sampling.least <= tokens <= sampling.most and needs.by_call[number]:
            candidates.append(number)
    if len(candidates) <= sampling.answers:
        return candidates
    # one from the middle of each of so many equal parts
    step = len(candidates) / sampling.answers
    return [candidates[int((place + 0.5) * step)] for place in range(sampling.answers)]


def _end_after(conversation: RecordedConversation, last: int) -> RecordedConversation:
    """The conversation up to the request of its last sampled call, without tools: no judge is shown them."""
    calls = conversation.calls[: last + 1]
    end = _answer_end(conversation, calls[-1])
    return RecordedConversation(
        trace=conversation.trace, messages=conversation.messages[:end], tools=[], calls=calls
    )


def _answer_end(conversation: RecordedConversation, call: ModelCall) -> int:
    """The position after the last message of an answer."""
    end = call.end
    while end < len(conversation.messages) and conversation.messages[end].get("role") == "assistant":
        end += 1
    return end


def _read_answer(conversation: RecordedConversation, number: int, needs: NeededTerms) -> _Answer:
    call = conversation.calls[number]
    messages = conversation.messages[call.end : _answer_end(conversation, call)]
    text = "\n".join(to_chat_text(message).text for message in messages)
    needed = find_spans(text, needs.by_call[number])
    return _Answer(session=conversation.trace.id, call=number, text=text, needed=needed)


def _choose_rules(trace: Trace, name: str) -> CacheRules:
    if name == OWN_RULES:
        return rules_for(trace.model, dialect=trace.dialect)
    return all_rules()[name]


def _sent_rows(
    answers: Sequence[_Answer], policy: str, window: int, steps: Sequence[WalkStep]
) -> list[LossRow]:
    """The rows of one policy. A call that the policy gave up has none."""
    rows = []
    for answer in answers:
        sent = steps[answer.call].sent
        if sent is not None:
            rows.append(_make_row(answer, policy, window, sent.messages))
    return rows


def _make_row(answer: _Answer, policy: str, window: int, messages: Sequence[dict[str, object]]) -> LossRow:
    texts: list[ChatText] = [to_chat_text(message) for message in messages]
    return LossRow(
        session=answer.session,
        call=answer.call,
        policy=policy,
        window=window,
        messages=tuple(texts),
        answer=answer.text,
        needed=answer.needed,
    )
