"""Learns from recorded sessions which results are needed again, and checks in others whether that helps.

At places of a session that are spread evenly, each result that stands there is a case: its age, its size,
what its call did, what came after it, and how many names the next answers take from it that stand nowhere
later. `lamina.core.need` says what a table is. Its weights are fitted by iterative proportional fitting: each
weight becomes what was observed over what was expected, in turn, until nothing changes.

Sessions are parted into two halves by the digest of their ids. One half teaches, the other decides: at each
of its places the results are hidden, in the order that the table gives, until a share of their tokens is
hidden, and the names that are still there when they are needed are counted. A table that does not keep more
of them than lamina's own is refused.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import log2, prod
from typing import NamedTuple

import msgspec

from lamina.core.build import build
from lamina.core.ladder import TOKEN_VALUES, ripeness
from lamina.core.layout import Layout
from lamina.core.need import (
    AGES,
    DOUBLING,
    RAREST,
    RECORDED,
    SIZES,
    NeedTable,
    ReadResult,
    read_results,
    scale_ripeness,
)
from lamina.core.values import Entry, ToolResult
from lamina.dialects import DIALECTS
from lamina.dialects.translate import choose_options
from lamina.models.counters import counter_for
from lamina.models.counters.openai import o200k
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import CHAT, RecordedConversation, read_conversation
from lamina.replay.needed_names import NeededTerms
from lamina.replay.session_halves import halve_sessions
from lamina.replay.values import Trace

AHEAD = 12
"""Answers that may need a result: about so many come between two cuts."""

EVERY = 6
"""Calls between two places at which a session is looked at."""

YOUNGEST = 2
"""Steps that a result is old at least. Cuts spare what is younger."""

SHARES = (0.5, 0.7, 0.8, 0.9)
"""Of the tokens of all results: how much is hidden when orders are compared."""

DOUBT = 10
"""So many needed results are added to what was observed and to what was expected, so that few cases say
little."""

FEWEST_NEEDED = 20
"""Needed results of one tool without which it has no weight of its own."""

FEWEST_SESSIONS = 10
"""Sessions in each half without which nothing is learned."""

_GROUPS = ("verbs", "since", "tools")
_ROUNDS = 50
_RESAMPLES = 400
SURE = 0.9
"""Of all resamples of the sessions: in so many must the learned order be the better one."""


class NeedCase(NamedTuple):
    """One result at one place of a session, and how many names the next answers took from it.

    `at` is its position in the session.
    """

    session: str
    place: int
    at: int
    age: int
    tokens: int
    result: ReadResult
    taken: int


class NeedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The share of needed names that stay, with another table and with the one that was learned.

    There is one figure for each of `SHARES`. `surer` is the share of resamples in which the learned table
    kept more.
    """

    sessions: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    surer: float

    @property
    def is_better(self) -> bool:
        """Whether the learned table keeps more, and not by luck alone."""
        return sum(self.after) > sum(self.before) and self.surer >= SURE


class LearnedNeed(msgspec.Struct, frozen=True, kw_only=True):
    """The learned table, and how it did in the other half of the sessions.

    `table` is None if nothing could be learned, or if it did not help there; `why` says so.
    """

    table: NeedTable | None = None
    check: NeedCheck | None = None
    why: str = ""

    def lines(self) -> list[str]:
        """What was found, in sentences."""
        lines: list[str] = []
        if self.check is not None:
            shares = zip(SHARES, self.check.before, self.check.after, strict=True)
            figures = ", ".join(
                f"{100 * old:.1f} to {100 * new:.1f} % ({share:.0%} hidden)" for share, old, new in shares
            )
            lines.append(
                f"in {self.check.sessions} sessions that it was not learned from, results keep this share of "
                f"the names that answers need: {figures}; better in {self.check.surer:.0%} of resamples"
            )
        if self.table is None:
            lines.append(f"nothing was learned: {self.why}")
        else:
            lines.append(f"learned from {self.table.sessions:,} sessions, {self.table.cases:,} cases")
        return lines


def gather_cases(trace: Trace, *, count_as: str = "") -> list[NeedCase]:
    """The cases of one session. If its results cannot be matched with its messages, there are none."""
    conversation = read_conversation(trace)
    model = count_as or trace.model
    counter = counter_for(model) if model else o200k()
    chat = DIALECTS[CHAT]
    parsed = chat.wire.parse({"messages": conversation.messages})
    options = choose_options(chat, parsed.head, layout=Layout(context="logged"))
    entries = build(parsed.log, head=parsed.head, counter=counter, options=options).entries
    position_of = _match_results(conversation, entries)
    if not position_of:
        return []
    needs = NeededTerms(conversation, MessageSizes(counter, []))
    taken_by_call = _count_taken_names(conversation, needs, position_of)
    cases: list[NeedCase] = []
    for place in range(EVERY, len(conversation.calls), EVERY):
        positions = [at for message, at in position_of.items() if message < conversation.calls[place].end]
        if positions:
            cases += _cases_at(
                trace.id, place, entries[: positions[-1] + 1], taken_by_call[place : place + AHEAD]
            )
    return cases


def _count_taken_names(
    conversation: RecordedConversation, needs: NeededTerms, position_of: Mapping[int, int]
) -> list[dict[int, int]]:
    """For each call, how many names its answer took from the results at these positions."""
    taken_by_call: list[dict[int, int]] = []
    for call, terms in zip(conversation.calls, needs.by_call, strict=True):
        taken: dict[int, int] = defaultdict(int)
        for term in terms:
            position = position_of.get(needs.latest(term, call.end))
            if position is not None:
                taken[position] += 1
        taken_by_call.append(taken)
    return taken_by_call


def _match_results(conversation: RecordedConversation, entries: Sequence[Entry]) -> dict[int, int]:
    """The position of each result among the entries, by its message; none if there are not as many."""
    positions = [at for at, entry in enumerate(entries) if isinstance(entry.segment.parts[0], ToolResult)]
    messages = [at for at, message in enumerate(conversation.messages) if message.get("role") == "tool"]
    if len(positions) != len(messages):
        return {}
    return dict(zip(messages, positions, strict=True))


def _cases_at(
    session: str, place: int, entries: Sequence[Entry], taken_by_call: Iterable[Mapping[int, int]]
) -> list[NeedCase]:
    """The results among these entries that are old enough, with what the next answers take from them."""
    taken: dict[int, int] = defaultdict(int)
    for taken_by_one in taken_by_call:
        for position, names in taken_by_one.items():
            taken[position] += names
    last_step = entries[-1].step
    cases: list[NeedCase] = []
    for position, result in read_results(entries).items():
        entry = entries[position]
        age = last_step - entry.step
        if age >= YOUNGEST:
            cases.append(NeedCase(session, place, position, age, entry.tokens, result, taken[position]))
    return cases


def learn_need(cases: Sequence[NeedCase], *, than: NeedTable = RECORDED, by_tool: bool = True) -> LearnedNeed:
    """A table from one half of the sessions, if it keeps more names in the other half than `than`.

    What is returned then is learned from all sessions.
    """
    teaching, checking = halve_cases(cases)
    fewest = min(len({case.session for case in half}) for half in (teaching, checking))
    if fewest < FEWEST_SESSIONS:
        why = (
            f"{2 * fewest} sessions with results of {YOUNGEST} steps and more are too few, "
            f"it takes {2 * FEWEST_SESSIONS}: half teach, half check it"
        )
        return LearnedNeed(why=why)
    check = check_table(checking, fit_table(teaching, by_tool=by_tool), than=than)
    if not check.is_better:
        why = "in sessions that it was not learned from, the table keeps no more than age and size do"
        return LearnedNeed(check=check, why=why)
    return LearnedNeed(table=fit_table(cases, by_tool=by_tool), check=check)


def halve_cases(cases: Sequence[NeedCase]) -> tuple[list[NeedCase], list[NeedCase]]:
    """The cases of each half of the sessions."""
    first_half, _ = halve_sessions({case.session for case in cases})
    teaching_sessions = frozenset(first_half)
    teaching: list[NeedCase] = []
    checking: list[NeedCase] = []
    for case in cases:
        if case.session in teaching_sessions:
            teaching.append(case)
        else:
            checking.append(case)
    return teaching, checking


class _Cell:
    """How many results of one sort were needed: expected by age and size alone, and observed."""

    def __init__(self) -> None:
        self.expected = 0.0
        self.observed = 0


_Weighed = tuple[str, str]
"""What has a weight, by its group and its name: `("verbs", "read")` or `("since", "edited")`."""

_Sort = tuple[_Weighed, ...]
"""A sort of results: all that has a weight in it."""


def fit_table(cases: Sequence[NeedCase], *, by_tool: bool = True) -> NeedTable:
    """The table that these cases ask for. With `by_tool`, tools with enough cases have weights of their own.

    A cell of few cases keeps close to that of `RECORDED`.
    """
    one_in = _count_one_in(cases)
    by_age_and_size = NeedTable(one_in=one_in)
    tools = _tools_with_weights(cases) if by_tool else frozenset()
    cells: dict[_Sort, _Cell] = defaultdict(_Cell)
    for case in cases:
        result = case.result
        sort: _Sort = (("verbs", result.verb), ("since", result.since))
        if result.tool in tools:
            sort = (*sort, ("tools", result.tool))
        cells[sort].expected += 1 / by_age_and_size.count_cases(case.age, case.tokens)
        cells[sort].observed += case.taken > 0
    weights: dict[str, dict[str, int]] = {group: {} for group in _GROUPS}
    for (group, name), rate in sorted(_fit_rates(cells).items()):
        weights[group][name] = round(DOUBLING * log2(rate))
    sessions = len({case.session for case in cases})
    return NeedTable(one_in=one_in, **weights, sessions=sessions, cases=len(cases))


def _count_one_in(cases: Iterable[NeedCase]) -> tuple[tuple[int, ...], ...]:
    """Of how many results of each age and size one was needed."""
    columns = len(SIZES) + 1
    counts = [[0] * columns for _ in RECORDED.one_in]
    needed = [[0] * columns for _ in RECORDED.one_in]
    for case in cases:
        row = bisect_left(AGES, case.age)
        column = bisect_left(SIZES, case.tokens)
        counts[row][column] += 1
        needed[row][column] += case.taken > 0
    rows: list[tuple[int, ...]] = []
    for row, usual in enumerate(RECORDED.one_in):
        numbers = []
        for column, usual_number in enumerate(usual):
            share = (needed[row][column] + DOUBT) / (counts[row][column] + DOUBT * usual_number)
            numbers.append(max(min(round(1 / share), RAREST), 1))
        rows.append(tuple(numbers))
    return tuple(rows)


def _fit_rates(cells: Mapping[_Sort, _Cell]) -> dict[_Weighed, float]:
    """How much more often than expected each sort of results is needed, by group and name."""
    rates: dict[_Weighed, float] = {}
    for _ in range(_ROUNDS):
        for group in _GROUPS:
            rates.update(_fit_group(group, cells, rates))
    return rates


def _fit_group(
    group: str, cells: Mapping[_Sort, _Cell], rates: Mapping[_Weighed, float]
) -> dict[_Weighed, float]:
    """The rates of one group, if those of all other groups are as they are."""
    expected: dict[_Weighed, float] = defaultdict(float)
    observed: dict[_Weighed, int] = defaultdict(int)
    for sort, cell in cells.items():
        for key in sort:
            if key[0] != group:
                continue
            others = prod(rates.get(other, 1.0) for other in sort if other != key)
            expected[key] += cell.expected * others
            observed[key] += cell.observed
    return {key: (count + DOUBT) / (expected[key] + DOUBT) for key, count in observed.items()}


def _tools_with_weights(cases: Iterable[NeedCase]) -> frozenset[str]:
    needed: dict[str, int] = defaultdict(int)
    for case in cases:
        needed[case.result.tool] += case.taken > 0
    return frozenset(tool for tool, count in needed.items() if tool and count >= FEWEST_NEEDED)


def check_table(cases: Sequence[NeedCase], table: NeedTable, *, than: NeedTable) -> NeedCheck:
    """How many of the needed names stay with this table, and with those of `than`."""
    by_place: dict[tuple[str, int], list[NeedCase]] = defaultdict(list)
    for case in cases:
        by_place[case.session, case.place].append(case)
    needed: dict[str, int] = defaultdict(int)
    before: dict[str, list[int]] = defaultdict(lambda: [0] * len(SHARES))
    after: dict[str, list[int]] = defaultdict(lambda: [0] * len(SHARES))
    for (session, _), group in by_place.items():
        needed[session] += sum(case.taken for case in group)
        for tally, chosen in ((before, than), (after, table)):
            for at, names in enumerate(_count_names(group, chosen)):
                tally[session][at] += names
    sessions = sorted(needed)
    total = max(sum(needed.values()), 1)
    return NeedCheck(
        sessions=len(sessions),
        before=_shares_of(before, sessions, total),
        after=_shares_of(after, sessions, total),
        surer=_share_of_resamples(
            [sum(after[name]) - sum(before[name]) for name in sessions],
        ),
    )


def _count_names(cases: Sequence[NeedCase], table: NeedTable) -> list[int]:
    """The needed names that stay at one place, for each share of the tokens that is hidden."""
    ordered = sorted(cases, key=lambda case: (-_ripeness_of(case, table), case.at))
    all_tokens = sum(case.tokens for case in cases)
    names_left: list[int] = []
    for share in SHARES:
        left = share * all_tokens
        names = 0
        for case in ordered:
            if case.tokens <= left:
                left -= case.tokens
            else:
                names += case.taken
        names_left.append(names)
    return names_left


def _ripeness_of(case: NeedCase, table: NeedTable) -> int:
    plain = ripeness(case.age, case.tokens, TOKEN_VALUES["full"])
    return scale_ripeness(plain, table.weigh(case.result))


def _shares_of(names: Mapping[str, Sequence[int]], sessions: Sequence[str], total: int) -> tuple[float, ...]:
    return tuple(sum(names[name][at] for name in sessions) / total for at in range(len(SHARES)))


def _share_of_resamples(gains: Sequence[int]) -> float:
    """In how many of the resamples of sessions the gains are above 0 together; always the same ones."""
    chooser = random.Random(1)  # noqa: S311 - not a secret
    better = sum(sum(chooser.choices(gains, k=len(gains))) > 0 for _ in range(_RESAMPLES))
    return better / _RESAMPLES
