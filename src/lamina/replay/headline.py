"""Answers in a few figures: what sessions cost, what they would have cost, and what cache misses lost.

`compare_sessions` puts what was recorded of each session beside what it would have cost under each policy.
`summarise` adds that up for the first setting of an account, which is the one that a reader asked for. The
terminal and the JSON file show these figures. `group_sessions` adds sessions up by user, project, client,
model, month or day. Nothing here writes them down.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.dialects.usage import count_noun
from lamina.replay.account_sums import (
    group_by,
    list_losses,
    setting_of,
    share_of,
    sum_fields,
    sum_known,
)
from lamina.replay.values import ReplayAccount, ReplayOutcome, Reported, day_of

OWN_POLICY = "lamina"
UNTOUCHED = "none"
MOST_REASONS = 3
"""Reasons for lost caches in a headline."""

SHORTENED_SHARE = 2 / 3
"""If the records have less than this share of the tokens that the log holds, something left the rest out."""

DEARER_BY = 1.01
"""A session is dearer under lamina if it costs more than this times what it cost before."""

GROUPINGS = ("user", "project", "client", "model", "month", "day")

NOT_NAMED = "(not named)"


class SessionCost(msgspec.Struct, frozen=True, kw_only=True):
    """One session: what was recorded, and what it would have cost under each policy, in dollars.

    `policies` are simulated, with recalls, and without policies that have no price; `refused` has the calls
    of each that have no answer. `own` is what lamina would have cost. A simulated cache is not the real one:
    if the client sent everything, `own` is what was recorded, times what lamina costs beside sending
    everything, both simulated. So it is what was recorded where lamina changes nothing. `dearer` says why
    lamina costs more than before.

    A call that is refused costs nothing, so a session with such calls on either side has no `own`: less
    would be done for it, or more. Nor has one that ran under lamina: its record is the cost under lamina. Nor
    has one that `is_shortened`: far less was sent than its log holds, and the log does not say why.
    """

    trace: str
    source: str
    model: str
    project: str = ""
    began: float | None = None
    title: str = ""
    calls: int = 0
    cuts: int = 0
    recorded: float | None = None
    policies: dict[str, float] = {}
    refused: dict[str, int] = {}
    under_lamina: bool = False
    is_shortened: bool = False
    compactions: int = 0
    own: float | None = None
    dearer: str = ""

    @property
    def before(self) -> float | None:
        """What the session cost without lamina, as far as that is known."""
        if self.recorded is not None:
            return self.recorded
        return self.policies.get(UNTOUCHED)

    @property
    def is_comparable(self) -> bool:
        """Whether both what it cost and what lamina would have cost are known."""
        return self.own is not None and self.before is not None

    @property
    def has_refused(self) -> bool:
        """Whether a call of it would have no answer, under lamina or with everything sent."""
        return any(self.refused.get(policy) for policy in (OWN_POLICY, UNTOUCHED))


def compare_sessions(account: ReplayAccount) -> list[SessionCost]:
    """Every session of the account under the first of its settings, the dearest first.

    A session that was only recorded, or only replayed, is among them.
    """
    outcomes = outcomes_of_first_setting(account.outcomes)
    outcomes_by_trace = group_by(outcomes, lambda outcome: outcome.trace)
    reports = {report.trace: report for report in account.reported}
    traces = dict.fromkeys([*outcomes_by_trace, *reports])
    sessions = [_compare(trace, reports.get(trace), outcomes_by_trace.get(trace, [])) for trace in traces]
    sessions.sort(key=lambda session: (-(session.before or 0.0), session.trace))
    return sessions


def outcomes_of_first_setting(outcomes: Sequence[ReplayOutcome]) -> list[ReplayOutcome]:
    """The outcomes under the window and the rules that were asked for first.

    With `--window 64000 --window 128000` these are the outcomes for 64,000.
    """
    if not outcomes:
        return []
    first = setting_of(outcomes[0])
    return [outcome for outcome in outcomes if setting_of(outcome) == first]


def _compare(trace: str, report: Reported | None, outcomes: Sequence[ReplayOutcome]) -> SessionCost:
    """One session: its records, if it has some, beside its outcome under each policy.

    A session that was only replayed has no report.
    """
    if report is None:
        report = Reported(trace=trace, source=outcomes[0].source, model=outcomes[0].model)
    own = None
    policies = {}
    refused = {}
    is_shortened = False
    for outcome in outcomes:
        if outcome.policy == OWN_POLICY:
            own = outcome
        if outcome.policy == UNTOUCHED and not report.compactions and not report.under_lamina:
            has_all_calls = report.calls >= outcome.calls
            is_shortened = has_all_calls and report.sent < SHORTENED_SHARE * outcome.sent
        if outcome.dollars is not None:
            policies[outcome.policy] = outcome.dollars + outcome.recall_dollars
        refused[outcome.policy] = outcome.refused
    session = SessionCost(
        trace=trace,
        source=report.source,
        model=report.model,
        project=report.project,
        began=report.began,
        title=report.title,
        calls=max([report.calls, *(outcome.calls for outcome in outcomes)]),
        cuts=own.cuts if own else 0,
        recorded=report.dollars,
        policies=policies,
        refused=refused,
        under_lamina=report.under_lamina,
        is_shortened=is_shortened,
        compactions=report.compactions,
    )
    # a refused call costs nothing, and a record under lamina is the cost under lamina already
    if not session.has_refused and not session.under_lamina and not session.is_shortened:
        session = msgspec.structs.replace(session, own=_estimate_own(policies, report))
    return msgspec.structs.replace(session, dearer=_explain_dearer(session, own))


def _estimate_own(policies: dict[str, float], report: Reported) -> float | None:
    """What lamina would have cost, as `SessionCost` says.

    Recorded $2, simulated $3 untouched and $1.50 under lamina: half of what was recorded, so $1.
    """
    own = policies.get(OWN_POLICY)
    untouched = policies.get(UNTOUCHED)
    if own is None or report.dollars is None or not untouched or report.compactions:
        return own
    return report.dollars * own / untouched


def _explain_dearer(session: SessionCost, own: ReplayOutcome | None) -> str:
    """Why lamina costs more in this session; "" if it does not."""
    if own is None or session.own is None or session.before is None:
        return ""
    if session.own <= DEARER_BY * session.before:
        return ""
    if not own.cuts:
        return "the client compacted its history, and lamina had no need to cut"
    # recalls alone make the difference
    if own.recall_dollars >= session.own - session.before:
        return f"for {count_noun(own.recalls, 'recall')} of what {count_noun(own.cuts, 'cut')} left out"
    return f"{count_noun(own.cuts, 'cut')}, after each of which the request is written to the cache anew"


class GroupCost(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions of one user, project, client, model, month or day.

    `cached` is the share of the tokens sent that the cache gave, and `dollars` what the records say of the
    sessions that have prices. `own` is what lamina would have cost in those of them that can be compared,
    which cost `own_before`, and `saved` the share of that which it would have saved; below 0 if it would have
    cost more. These are None without a replay.
    """

    name: str
    sessions: int
    calls: int
    sent: int
    read: int
    output: int
    cached: float | None
    dollars: float | None
    losses: int
    lost_dollars: float | None
    compactions: int
    own: float | None = None
    own_before: float | None = None
    saved: float | None = None


def group_sessions(account: ReplayAccount, by: str) -> list[GroupCost]:
    """The sessions of an account that have calls, by one of `GROUPINGS`; the dearest first, days in order."""
    reports = [report for report in account.reported if report.calls]
    costs = {cost.trace: cost for cost in compare_sessions(account)}
    reports_by_name = group_by(reports, lambda report: _name_of(report, by) or NOT_NAMED)
    groups = [_sum_group(name, group, costs) for name, group in reports_by_name.items()]
    if by in ("day", "month"):
        return sorted(groups, key=lambda group: group.name)
    return sorted(groups, key=lambda group: (-(group.dollars or 0.0), -group.sent, group.name))


def _name_of(report: Reported, by: str) -> str:
    """What a session is grouped by; "" if its records do not say."""
    match by:
        case "day":
            return day_of(report.began)
        case "month":
            return day_of(report.began)[:7]
        case "client":
            return report.client or report.source
    name: str = getattr(report, by)
    return name


def _sum_group(name: str, reports: Sequence[Reported], costs: dict[str, SessionCost]) -> GroupCost:
    losses = list_losses(reports)
    sessions = [costs[report.trace] for report in reports]
    compared = [session for session in sessions if session.is_comparable]
    own = sum_known(compared, "own")
    own_before = sum_known(compared, "before")
    saved = None
    if own is not None and own_before:
        saved = 1 - own / own_before
    sums = sum_fields(reports, ["calls", "sent", "read", "output", "compactions"])
    return GroupCost(
        name=name,
        sessions=len(reports),
        cached=share_of(sums["read"], sums["sent"]),
        dollars=sum_known(reports, "dollars"),
        losses=len(losses),
        lost_dollars=sum_known(losses, "dollars"),
        own=own,
        own_before=own_before,
        saved=saved,
        **sums,
    )
