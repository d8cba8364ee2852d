"""Promises how deep cuts may go so that they hide little of what answers need, and checks whether it held.

Sessions of one source are parted into two halves by the digest of their ids. On one half each depth is
calibrated: of the shares of needed names that it hid, session by session, the bound is the one that a new
session of the same source exceeds with a chance of at most 1 - `confidence` (split conformal prediction). It
asks for nothing but that sessions are exchangeable. The other half says whether the promise came true.

A name is hidden if the request has it nowhere, neither in a message nor in a digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from math import ceil

import msgspec

from lamina.fitting.promised_depths import DepthBounds, DepthTable
from lamina.replay.session_halves import halve_sessions
from lamina.replay.values import ReplayOutcome

DEPTHS = (0.75, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Shares of the room that a cut leaves, from the one that hides least."""

CONFIDENCE = 0.95


AtDepths = dict[float, ReplayOutcome]
"""One session, replayed at each depth."""

Sessions = dict[str, AtDepths]
"""Sessions by their ids."""


class SessionGroup(msgspec.Struct, frozen=True, order=True):
    """The sessions for which one promise is made."""

    source: str
    window: int
    rules: str


class DepthPromise(msgspec.Struct, frozen=True, kw_only=True):
    """The deepest cut that keeps a limit, for the sessions of one source in one window.

    `target` is the share of the room to give as `Budget.target`; None if no depth can be promised, and `why`
    says so. `bound` is what was found on the half for calibration, with so many sessions. Of the `held_out`
    sessions `came_true` kept the limit, and together they hid the share `hidden`. `relative_cost` is what
    they cost beside the safest depth.
    """

    group: SessionGroup
    limit: float
    confidence: float
    calibrated: int
    target: float | None = None
    bound: float = 1.0
    held_out: int = 0
    came_true: int = 0
    hidden: float = 0.0
    relative_cost: float = 1.0
    why: str = ""

    def line(self) -> str:
        """The promise in one sentence, and what came of it in another."""
        place = f"{self.group.source}, window {self.group.window:,}, cache of {self.group.rules}"
        if self.target is None:
            return f"{place}: no promise, {self.why}"
        promised = (
            f"a target of {self.target:g} hides at most {100 * self.limit:g} % of the names that answers "
            f"need in {100 * self.confidence:g} % of sessions (bound {100 * self.bound:.1f} %, "
            f"{self.calibrated} sessions)"
        )
        came = (
            f"it came true in {self.came_true} of {self.held_out} others, which hid "
            f"{100 * self.hidden:.1f} % at {self.relative_cost:.2f} of the cost of {DEPTHS[0]:g}"
        )
        return f"{place}: {promised}; {came}"


_DEPTHS_OF_POLICIES = {f"lamina@{depth:g}": depth for depth in DEPTHS}


def depth_policies() -> list[str]:
    """The policies that have to be replayed for a promise."""
    return list(_DEPTHS_OF_POLICIES)


def promise_depths(
    outcomes: Iterable[ReplayOutcome], *, limit: float, confidence: float = CONFIDENCE
) -> list[DepthPromise]:
    """One promise for each source, window and cache, from the outcomes of `depth_policies`.

    Depths are tried from the safest on, and the first that exceeds the limit ends the search: so it does not
    matter how many are tried.
    """
    return [
        _promise(group, sessions, limit=limit, confidence=confidence)
        for group, sessions in sorted(_group_sessions(outcomes).items())
    ]


def _group_sessions(outcomes: Iterable[ReplayOutcome]) -> dict[SessionGroup, Sessions]:
    """The outcomes of each source, window and cache, by session and depth."""
    by_group: dict[SessionGroup, Sessions] = {}
    for outcome in outcomes:
        depth = _DEPTHS_OF_POLICIES.get(outcome.policy)
        if depth is not None and outcome.needed:
            sessions = by_group.setdefault(SessionGroup(outcome.source, outcome.window, outcome.rules), {})
            sessions.setdefault(outcome.trace, {})[depth] = outcome
    return by_group


def _halve(sessions: Sessions) -> tuple[list[AtDepths], list[AtDepths]]:
    """The sessions that calibrate, and those that check it."""
    calibrating, checking = halve_sessions(sessions)
    return [sessions[name] for name in calibrating], [sessions[name] for name in checking]


def _bound_depth(calibration: Sequence[AtDepths], depth: float, confidence: float) -> float:
    return bound_shares([_hidden_share(session[depth]) for session in calibration], confidence)


def calibrate_depths(outcomes: Iterable[ReplayOutcome], *, confidence: float = CONFIDENCE) -> DepthTable:
    """The bounds of each depth for each source and window, from the half of the sessions that calibrates.

    Promises hold for every cache, so of several caches the one with the larger bounds counts. Sources with
    too few sessions are left out.
    """
    rows: dict[tuple[str, int], DepthBounds] = {}
    for group, sessions in sorted(_group_sessions(outcomes).items()):
        calibration, _ = _halve(sessions)
        if len(calibration) < fewest_sessions(confidence):
            continue
        bounds = tuple((depth, _bound_depth(calibration, depth, confidence)) for depth in DEPTHS)
        other_row = rows.get((group.source, group.window))
        if other_row is not None:
            pairs = zip(bounds, other_row.bounds, strict=True)
            bounds = tuple((depth, max(bound, other)) for (depth, bound), (_, other) in pairs)
        rows[group.source, group.window] = DepthBounds(
            source=group.source, window=group.window, sessions=len(calibration), bounds=bounds
        )
    return DepthTable(confidence=confidence, rows=tuple(rows.values()))


def fewest_sessions(confidence: float) -> int:
    """Sessions for calibration without which nothing can be promised: 19 for a confidence of 0.95."""
    return ceil(round(confidence / (1 - confidence), 9))


def bound_shares(shares: Sequence[float], confidence: float) -> float:
    """What a new share exceeds with a chance of at most 1 - `confidence`; 1 if there are too few shares."""
    rank = ceil(round((len(shares) + 1) * confidence, 9))
    if rank > len(shares):
        return 1.0
    return sorted(shares)[rank - 1]


def _promise(
    group: SessionGroup,
    sessions: Sessions,
    *,
    limit: float,
    confidence: float,
) -> DepthPromise:
    calibration, held_out = _halve(sessions)
    promise = DepthPromise(group=group, limit=limit, confidence=confidence, calibrated=len(calibration))
    needed = fewest_sessions(confidence)
    if len(calibration) < needed:
        why = f"{len(sessions)} sessions are too few, it takes {2 * needed}: half calibrate, half check it"
        return msgspec.structs.replace(promise, why=why)
    bounds = {depth: _bound_depth(calibration, depth, confidence) for depth in DEPTHS}
    # the first depth that exceeds the limit ends the search: picking the best of all would be luck
    within_limit = list(takewhile(lambda depth: bounds[depth] <= limit, DEPTHS))
    if not within_limit:
        why = f"even a target of {DEPTHS[0]:g} may hide {100 * bounds[DEPTHS[0]]:.1f} % of a session's names"
        return msgspec.structs.replace(promise, why=why)
    chosen = within_limit[-1]
    at_depth = [session[chosen] for session in held_out]
    safest = [session[DEPTHS[0]] for session in held_out]
    names = sum(outcome.needed for outcome in at_depth)
    cost_of_safest = sum(outcome.equivalents for outcome in safest)
    return msgspec.structs.replace(
        promise,
        target=chosen,
        bound=bounds[chosen],
        held_out=len(held_out),
        came_true=sum(_hidden_share(outcome) <= limit for outcome in at_depth),
        hidden=sum(outcome.needed - outcome.visible for outcome in at_depth) / max(names, 1),
        relative_cost=sum(outcome.equivalents for outcome in at_depth) / max(cost_of_safest, 1e-9),
    )


def _hidden_share(outcome: ReplayOutcome) -> float:
    return (outcome.needed - outcome.visible) / outcome.needed
