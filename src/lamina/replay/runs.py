"""Every trace under every policy, window and cache: a pure function of one trace, and a pool that runs it.

`played` takes one trace and gives its outcomes; it reads no file and keeps nothing, so the same function can
be handed to any engine that maps over records. `replay` maps it over a few processes, in order, with no
more traces in memory than are being worked on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import msgspec

from lamina.caches import all_rules, rules_for
from lamina.errors import LaminaError
from lamina.models.counters import counter_for
from lamina.models.counters.openai import o200k
from lamina.models.facts import AS_OF
from lamina.replay.message_sizes import Scales
from lamina.replay.model_calls import RecordedConversation, conversation
from lamina.replay.needed_names import Needs
from lamina.replay.outcomes import outcome
from lamina.replay.policies import TRIGGER, policy
from lamina.replay.policies.port import Policy, Setting
from lamina.replay.recorded_usage import reported
from lamina.replay.values import ReplayAccount, ReplayOutcome, Reported, Trace, UnreadableLine
from lamina.replay.walk import WalkStep, walk

RESERVE, TARGET = 8, 0.5
"""One part in so many of the window is kept for the answer; of the room, what a cut leaves."""

OWN = "own"
"""The rules of each session's own model."""

MODELS = {
    "anthropic": "claude-opus-4-6",
    "openai": "gpt-5.6",
    "openai_legacy": "gpt-5.4",
    "gemini": "gemini-3-pro",
}
"""Whose prices and minimum are used for a session that another provider's model answered."""


class Asks(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of each trace.

    `model` is the one whose prices hold, `count_as` the one whose tokens are counted; "" is the session's.
    `pressed`: only sessions and windows in which a policy has work.
    """

    policies: tuple[str, ...]
    windows: tuple[int, ...]
    rules: tuple[str, ...] = (OWN,)
    model: str = ""
    count_as: str = ""
    points: bool = False
    pressed: bool = False


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What one trace gave."""

    outcomes: tuple[ReplayOutcome, ...] = ()
    reported: Reported | None = None
    damaged: UnreadableLine | None = None


def replay(
    traces: Iterable[Trace | UnreadableLine],
    *,
    policies: Sequence[str],
    windows: Sequence[int],
    rules: Sequence[str] = (OWN,),
    model: str = "",
    count_as: str = "",
    jobs: int = 1,
    points: bool = False,
    pressed: bool = False,
    progress: Callable[[Played], None] | None = None,
) -> ReplayAccount:
    """The account of these traces. Order and figures do not depend on `jobs`."""
    asks = Asks(
        policies=tuple(policies),
        windows=tuple(windows),
        rules=tuple(rules),
        model=model,
        count_as=count_as,
        points=points,
        pressed=pressed,
    )
    outcomes: list[ReplayOutcome] = []
    told: list[Reported] = []
    damaged: list[UnreadableLine] = []
    for found in _mapped(traces, asks, jobs):
        outcomes += found.outcomes
        told += [found.reported] if found.reported else []
        damaged += [found.damaged] if found.damaged else []
        if progress is not None:
            progress(found)
    return ReplayAccount(outcomes=tuple(outcomes), reported=tuple(told), damaged=tuple(damaged), as_of=AS_OF)


def played(trace: Trace, asks: Asks) -> Played:
    """One trace under everything that is asked."""
    try:
        talk = conversation(trace)
        return Played(outcomes=tuple(_outcomes(talk, asks)), reported=reported(trace))
    except (LaminaError, RecursionError) as error:
        return Played(damaged=UnreadableLine(place=trace.place or trace.id, reason=str(error)))


def _outcomes(talk: RecordedConversation, asks: Asks) -> Iterator[ReplayOutcome]:
    if not talk.calls:
        return
    named = asks.count_as or asks.model or talk.trace.model
    scales = Scales(counter_for(named) if named else o200k(), talk.tools)
    needs = Needs(talk, scales)
    most = scales.tokens(talk.messages[: talk.calls[-1].end])
    for window in asks.windows:
        room = window - window // RESERVE
        if asks.pressed and most <= int(room * TRIGGER):
            continue
        sizes = {"window": window, "room": room, "trigger": int(room * TRIGGER), "target": int(room * TARGET)}
        settings = [_setting(talk.trace, name, asks.model, scales, sizes) for name in asks.rules]
        for name in asks.policies:
            yield from _under(talk, policy(name), settings, needs, points=asks.points)


def _under(
    talk: RecordedConversation, found: Policy, settings: Sequence[Setting], needs: Needs, *, points: bool
) -> Iterator[ReplayOutcome]:
    steps: list[WalkStep] | None = None
    for setting in settings:
        if steps is None or found.by_rules:
            steps = walk(talk, found, setting, needs)
        yield outcome(talk.trace, found, setting, steps, points=points)


def _setting(trace: Trace, name: str, model: str, scales: Scales, sizes: dict[str, int]) -> Setting:
    """The rules of this name, with the model whose prices go with them."""
    own = rules_for(model or trace.model, dialect=trace.dialect)
    if name in (OWN, own.name):
        return Setting(scales=scales, rules=own, model=model or trace.model, **sizes)
    return Setting(scales=scales, rules=all_rules()[name], model=MODELS.get(name, ""), **sizes)


def _mapped(traces: Iterable[Trace | UnreadableLine], asks: Asks, jobs: int) -> Iterator[Played]:
    if jobs <= 1:
        for trace in traces:
            yield Played(damaged=trace) if isinstance(trace, UnreadableLine) else played(trace, asks)
        return
    waiting: deque[Future[Played] | Played] = deque()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for trace in traces:
            waiting.append(
                Played(damaged=trace)
                if isinstance(trace, UnreadableLine)
                else pool.submit(played, trace, asks)
            )
            while len(waiting) > 3 * jobs:
                yield _done(waiting.popleft())
        while waiting:
            yield _done(waiting.popleft())


def _done(found: Future[Played] | Played) -> Played:
    return found if isinstance(found, Played) else found.result()
