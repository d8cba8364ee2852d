"""Replays every trace under every policy, window and cache.

`replay_trace` takes one trace and returns its outcomes. It reads no file and keeps nothing, so that the same
function can be handed to anything that maps over records. `replay` maps it over processes, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import msgspec

from bench.lab.outcomes import evaluate_walk
from bench.lab.policies import find_policy
from bench.lab.port import ReplayPolicy, Setting, make_setting
from bench.lab.sums import OWN_RULES, OWN_WINDOW
from bench.lab.values import LabAccount, ReplayOutcome
from bench.lab.walk import NeededTerms, WalkStep, walk
from lamina.caches import all_rules, rules_for
from lamina.core import Counter as TokenCounter
from lamina.costs import Trace, UnreadableLine
from lamina.costs.logs.message_sizes import MessageSizes
from lamina.costs.logs.model_calls import RecordedConversation, read_conversation
from lamina.errors import BadInput, LaminaError
from lamina.models import AS_OF
from lamina.models import model as facts_of
from lamina.models.counters import counter_for
from lamina.models.counters.openai import o200k

UNKNOWN_WINDOW = 200_000
"""The window of a model that is not in the table of models."""

MODELS = {
    "anthropic": "claude-opus-4-6",
    "openai": "gpt-5.6",
    "openai_legacy": "gpt-5.4",
    "gemini": "gemini-3-pro",
}
"""Whose prices and minimum are used for a session that another provider's model answered."""


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How each trace is replayed. Without policies, only what was recorded is added up, which is quick.

    `model` is the one whose prices hold, `count_as` the one whose tokens are counted; "" is the session's. A
    window of `OWN_WINDOW` and the rules `OWN_RULES` are those of each session's model.
    `fill_head`: if the first request was larger than what is recorded of it, every request is sent with so
    many tokens more. Clients such as Claude Code record neither their system text nor their tools.
    `pressed`: only sessions and windows in which a policy has something to do.
    """

    policies: tuple[str, ...]
    windows: tuple[int, ...]
    rules: tuple[str, ...] = (OWN_RULES,)
    model: str = ""
    count_as: str = ""
    points: bool = False
    fill_head: bool = False
    pressed: bool = False


class TraceReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What one trace gave."""

    outcomes: tuple[ReplayOutcome, ...] = ()
    damaged: UnreadableLine | None = None


def replay(
    traces: Iterable[Trace | UnreadableLine],
    *,
    policies: Sequence[str],
    windows: Sequence[int],
    rules: Sequence[str] = (OWN_RULES,),
    model: str = "",
    count_as: str = "",
    jobs: int = 1,
    points: bool = False,
    fill_head: bool = False,
    pressed: bool = False,
    progress: Callable[[TraceReplay], None] | None = None,
) -> LabAccount:
    """The account of these traces, replayed by `jobs` processes. Order and figures do not depend on them."""
    options = ReplayOptions(
        policies=tuple(policies),
        windows=tuple(windows),
        rules=tuple(rules),
        model=model,
        count_as=count_as,
        points=points,
        fill_head=fill_head,
        pressed=pressed,
    )
    return make_account(replay_each(traces, options, jobs=jobs), progress=progress)


def make_account(
    replays: Iterable[TraceReplay], *, progress: Callable[[TraceReplay], None] | None = None
) -> LabAccount:
    """All replays as one account. `progress` gets each of them as it comes.

    A session that was copied and continued has its id in two files: the second one is named `ID (2)`.
    """
    outcomes: list[ReplayOutcome] = []
    damaged: list[UnreadableLine] = []
    times: Counter[str] = Counter()
    for trace_replay in replays:
        names = {outcome.trace for outcome in trace_replay.outcomes}
        times.update(names)
        for outcome in trace_replay.outcomes:
            name = outcome.trace
            if times[name] > 1:
                name = f"{name} ({times[name]})"
            outcomes.append(msgspec.structs.replace(outcome, trace=name))
        if trace_replay.damaged is not None and not trace_replay.damaged.foreign:
            damaged.append(trace_replay.damaged)
        if progress is not None:
            progress(trace_replay)
    return LabAccount(outcomes=tuple(outcomes), damaged=tuple(damaged), as_of=AS_OF)


def replay_trace(trace: Trace, options: ReplayOptions) -> TraceReplay:
    """One trace under every policy, window and cache of the options.

    A trace that cannot be read as a conversation is reported as damaged, and the replay goes on.
    """
    try:
        if not trace.items:  # without texts there is nothing to send again
            return TraceReplay()
        conversation = read_conversation(trace)
        if not conversation.calls:
            return TraceReplay()
        message_sizes = _message_sizes(conversation, options)
        outcomes = tuple(_make_outcomes(conversation, message_sizes, options))
        return TraceReplay(outcomes=outcomes)
    except (LaminaError, RecursionError) as error:
        return TraceReplay(damaged=UnreadableLine(place=trace.place or trace.id, reason=str(error)))


def _make_outcomes(
    conversation: RecordedConversation, message_sizes: MessageSizes, options: ReplayOptions
) -> Iterator[ReplayOutcome]:
    """Every policy under every window and cache."""
    needs = NeededTerms(conversation, message_sizes)
    largest_request = message_sizes.count_tokens(conversation.messages[: conversation.calls[-1].end])
    for window in options.windows:
        settings = [
            _setting(conversation.trace, window, name, options, message_sizes) for name in options.rules
        ]
        # a window that the session never fills shows no difference between policies
        if options.pressed and largest_request <= settings[0].trigger:
            continue
        for name in options.policies:
            policy = find_policy(name)
            yield from _outcomes_of_policy(conversation, policy, settings, needs, points=options.points)


def _message_sizes(conversation: RecordedConversation, options: ReplayOptions) -> MessageSizes:
    """Count in the tokens of the model that is named, or of the session's; of neither, in OpenAI's.

    With `fill_head`, what the first call sent beyond its messages counts for every request: tools and system
    text that the records do not hold.
    """
    model = options.count_as or options.model or conversation.trace.model
    counter: TokenCounter = o200k()
    if model:
        counter = counter_for(model)
    message_sizes = MessageSizes(counter, conversation.tools)
    first = conversation.calls[0]
    unrecorded = 0
    if options.fill_head and first.sent:
        recorded = message_sizes.count_tokens(conversation.messages[: first.end])
        unrecorded = max(first.sent - recorded, 0)
    return MessageSizes(counter, conversation.tools, unrecorded=unrecorded)


def _window_of(model: str) -> int:
    try:
        return facts_of(model).window or UNKNOWN_WINDOW
    except BadInput:
        return UNKNOWN_WINDOW


def _outcomes_of_policy(
    conversation: RecordedConversation,
    policy: ReplayPolicy,
    settings: Sequence[Setting],
    needs: NeededTerms,
    *,
    points: bool,
) -> Iterator[ReplayOutcome]:
    """One outcome for each cache. The policy runs again only if what it sends depends on the cache.

    Plain policies send the same under every cache, so their walk is used again.
    """
    steps: list[WalkStep] | None = None
    for setting in settings:
        if steps is None or policy.by_rules:
            steps = walk(conversation, policy, setting, needs)
        yield evaluate_walk(conversation.trace, policy, setting, steps, points=points)


def _setting(
    trace: Trace, window: int, rules_name: str, options: ReplayOptions, message_sizes: MessageSizes
) -> Setting:
    """A window and the rules of this name, with the model whose prices go with them."""
    priced_model = options.model or trace.model
    own_window = window == OWN_WINDOW
    if own_window:
        window = _window_of(priced_model)
    rules = rules_for(priced_model, dialect=trace.dialect)
    # rules of another provider go with a model of that provider, whose prices they multiply
    if rules_name not in (OWN_RULES, rules.name):
        rules = all_rules()[rules_name]
        priced_model = MODELS.get(rules_name, "")
    return make_setting(
        window,
        message_sizes,
        rules,
        model=priced_model,
        own_window=own_window,
        own_rules=rules_name == OWN_RULES,
    )


def replay_each(
    traces: Iterable[Trace | UnreadableLine], options: ReplayOptions, *, jobs: int = 1
) -> Iterator[TraceReplay]:
    """Replay each trace, in this process or on several processors, in the order of the traces."""
    replay_one = partial(replay_record, options=options)
    if jobs == 1:
        yield from map(replay_one, traces)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(replay_one, traces)


def replay_record(record: Trace | UnreadableLine, options: ReplayOptions) -> TraceReplay:
    """Replay what a reader returned. A line that cannot be read passes as damage."""
    if isinstance(record, UnreadableLine):
        return TraceReplay(damaged=record)
    return replay_trace(record, options)
