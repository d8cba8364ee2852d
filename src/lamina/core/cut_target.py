"""How far a cut should go: the price of tokens, and the loss of what is hidden.

A cut rewrites the prompt from its first edit on, once; what it leaves is read again at every later step.
With growth g a step, trigger H, target L and a head P that no cut touches, there are (H - L) / g steps
between two cuts. Reads cost r a token, writes w, so a step costs about
r (H + L) / 2 + (w - r) (L - P) g / (H - L), which falls as L falls: on price alone the deepest cut is the
cheapest. But what is cut may be needed again, and there are two kinds of it.

What is hidden and named (a result behind its handle, a name in a digest) can be recalled. An answer takes
from a token that is a steps old about `NEED` / a^1.5 a step; if the token is not there, the request is sent
once more and what was missing comes back. What is hidden in silence (what the user told) cannot be asked for,
since nobody knows of it: that costs a wrong answer, and what a user told does not age as a file does. So L
rises while one token more costs less than the recalls and the wrong answers that it spares. A conversation in
which the user says much and that grows slowly is cut less deeply than an agent's loop with large results.
notes/planner.md derives this, and measures it against the best that could have been done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import NamedTuple

import msgspec

from lamina.core.entries import find_first_answer, is_long_message, is_users_text
from lamina.core.values import Budget, Entry, Layer, Preference, RequestHead, Role
from lamina.errors import BadInput

USUAL_PART = 3
"""If the answer may take more than one part in this many of the window, the account says so."""

RESERVE, RESERVED_PART = 16_000, 8
"""Tokens kept free for the answer if the request does not say how long it may be: one part in so many of the
window, and at most so many tokens."""

SPARED, LEAST_SPARED = 0.25, 1_300
"""The newest steps that a cut spares: a share of the room. If the target cannot be reached otherwise, it is
less, but not less than so many tokens. A small window has no smaller steps than a large one. In a large one
so few tokens are but a step or two, so the least is also a share of the room: see `Pricing`."""

FEW_STEPS = 2_600
"""Tokens of a few steps. A cut that weighs what it hides spares them in a middling window, too, as long as
they are within `SPARED`: at 12,000 tokens that took a third of the loss away, for 4 % more cost."""

SPARED_RESULT_PART = 24
"""A result in a spared step may keep one part in this many of the room. Many short results say more than one
long result."""

LEAST_FREED = 0.2
"""Of the room: a cut that would free less waits until the room itself is full, since each cut loses the
cache. If a caller's target is nearer to the trigger than that, a cut that reaches it is enough."""

LEAST_HISTORY = 20
"""Of the room beside what no cut can free, in hundredths: the least that a cut aims to leave of the history.
A request with many tools would otherwise have a target below what its tools alone take."""

ALWAYS_SENT = (Layer.SYSTEM, Layer.PROMPT)
"""The layers that no cut touches."""

NEED = 0.0035
"""How often an answer takes a name from a given token of one step ago: measured, see notes/planner.md."""

BACK = 1_500
"""Tokens that a recall brings back."""

GRID = 5
"""Of the room, in hundredths: how finely the depth of a cut is chosen."""


class Pricing(NamedTuple):
    """What hiding is taken to cost. `named` multiplies the price of recalls.

    `silent` is what it spares at each step that one more token of the user's words stands, in tokens: see
    notes/planner.md. `lowest` and `highest` are the least and the most that a cut leaves, in hundredths of
    the room, and `recalled` the most that it leaves for the sake of recalls. `spared` is the share of the
    room for the newest steps that a cut spares even if it cannot reach its target so. `working` is how many
    tokens of a conversation are worth sending with each call where reading them costs `USUAL_READ`.
    """

    named: float
    silent: float
    lowest: int
    highest: int
    recalled: int
    spared: float
    working: int


PRICING: dict[Preference, Pricing] = {
    "memory": Pricing(
        named=4.0, silent=0.6, lowest=50, highest=75, recalled=75, spared=0.16, working=128_000
    ),
    "balanced": Pricing(
        named=0.5, silent=0.16, lowest=30, highest=50, recalled=35, spared=0.16, working=48_000
    ),
    "cost": Pricing(named=0.0, silent=0.0, lowest=20, highest=20, recalled=20, spared=0.0, working=32_000),
}
PRICING["answers"] = PRICING["balanced"]
"""What `Options.prefer` means. The default never costs more than a window that slides down to half of the
room."""

BALANCED = PRICING["balanced"]

TALK = 2_000
"""Tokens of a talk, beside what no cut can free, that are sent with "answers". A small model answers best
with 500 to 2,000 and a reminder; the most of these needs the fewest cuts, and shows most unasked."""

USUAL_READ = 0.1
"""What most caches take for a token that they hold, as a share of the input price."""

STEPS = 16
"""Steps over which growth is measured."""

_ENTRIES_PER_STEP = 20
"""So many entries of each step are looked at, at most."""

OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
"""Parameters in which requests say how long the answer may be."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A cache's prices, as multiples of the input price, and its lifetime in seconds."""

    read: float = 0.1
    write: float = 1.25
    ttl: int = 300


class Sparing(msgspec.Struct, frozen=True):
    """Which of the last steps a cut would rather not touch: so many of them, or the newest up to a size.

    A number of steps comes from the caller. By default it is a size, since steps differ: five steps can be
    two thousand tokens or twenty thousand. Then `largest` is what one result counts for at most: a cut may
    shorten a larger one to that, so that one large result does not take the place of several steps. 0 sets no
    limit.
    """

    steps: int = 0
    tokens: int = 0
    largest: int = 0

    def __bool__(self) -> bool:
        return self.steps > 0 or self.tokens > 0

    def halve(self, *, least: int = 0) -> Sparing:
        """Half as much, but at least so many tokens. Without `least`, little becomes nothing."""
        tokens = self.tokens // 2
        if tokens < _NEGLIGIBLE:
            tokens = 0
        return Sparing(steps=self.steps // 2, tokens=max(tokens, least), largest=self.largest)


NOTHING_SPARED = Sparing()

_NEGLIGIBLE = 200
"""Tokens below which a step is not worth sparing."""


class CutLimits(msgspec.Struct, frozen=True, kw_only=True):
    """A budget in tokens, for one request.

    A cut that frees less than `least` waits. `sparing` says which of the last steps a cut would rather not
    touch, and `least_spared` the tokens of them that it spares even if it cannot reach its target so. `fixed`
    is what no cut can free. `working` is the room as far as it is worth its price (`Budget.working`): all but
    the limit itself is derived from it.
    """

    room: int
    working: int
    trigger: int
    target: int
    least: int
    sparing: Sparing = NOTHING_SPARED
    least_spared: int = LEAST_SPARED
    fixed: int = 0

    @property
    def free(self) -> int:
        """The working room beside what no cut can free: digests have a share of it."""
        return self.working - self.fixed

    def ask_for_cut(self, tokens: int, *, cold: bool) -> bool:
        """Whether a request is over the trigger, or the cache is cold and a cut would free enough.

        A cold cache must be written anew in any case, so a cut costs nothing then.
        """
        if tokens > self.trigger:
            return True
        return cold and self.is_worth_a_cut(tokens - self.target)

    def is_worth_a_cut(self, freed: int) -> bool:
        """Whether a cut that frees so many tokens is worth the cache that it costs."""
        return freed >= max(self.least, 1)


DEFAULT_RATES = Rates()


def _find_least_spared(room: int, pricing: Pricing) -> int:
    """The tokens of the newest steps that a cut spares even if it cannot reach its target so."""
    if not pricing.spared:
        return LEAST_SPARED
    few_steps = min(FEW_STEPS, _share_of(room, SPARED))
    return max(LEAST_SPARED, few_steps, _share_of(room, pricing.spared))


def derive_limits(
    budget: Budget,
    head: RequestHead,
    entries: Sequence[Entry],
    rates: Rates = DEFAULT_RATES,
    *,
    fixed: int = 0,
    prefer: Preference = "balanced",
) -> CutLimits:
    """The limits of one request. If the budget has no target, the best one is computed.

    `fixed` are the tokens that no cut can free: see `count_fixed`.
    """
    room = find_room(budget, head)
    # Shares are those of the whole room, or of a working room above what no cut can free.
    below = 0
    above = room
    if budget.working is not None and fixed + budget.working < room:
        below = fixed
        above = budget.working
    trigger = _share_of(above, budget.trigger)
    least = _share_of(above, LEAST_FREED)
    least_spared = LEAST_SPARED
    if budget.target is None:
        pricing = PRICING[prefer]
        growth = measure_growth(entries)
        target = choose_target(above, trigger, growth, rates, fixed=fixed - below, pricing=pricing)
        # A target nearer to the trigger would be that of a cut which frees too little, and waits.
        target = min(target, trigger - least)
        least_spared = _find_least_spared(above, pricing)
    else:
        target = _share_of(above, budget.target)
        least = min(least, trigger - target)
    return CutLimits(
        room=room,
        working=below + above,
        trigger=below + trigger,
        target=below + target,
        least=least,
        sparing=spare_steps(budget, above),
        least_spared=least_spared,
        fixed=min(fixed, room),
    )


def find_trigger(budget: Budget, head: RequestHead) -> int:
    """The tokens up to which no request is cut, however little of it no cut can free."""
    room = find_room(budget, head)
    if budget.working is not None:
        room = min(room, budget.working)
    return _share_of(room, budget.trigger)


def choose_working(rates: Rates, prefer: Preference) -> int | None:
    """How many tokens of a conversation are worth sending with each call; None for all that fit.

    The dearer reading is, the fewer they are. By the figures of notes/planner.md an old token is needed with
    the power of -1.5 of its age, so that the best number falls with the power of 2/3 of the price. A square
    root is nearly that, and every machine rounds it alike. Where reading is free, all tokens are worth it.
    """
    if rates.read <= 0:
        return None
    return int(PRICING[prefer].working * sqrt(USUAL_READ / rates.read))


def find_room(budget: Budget, head: RequestHead) -> int:
    """The tokens that a request may have. Raises BadInput if the budget has no window."""
    if not budget.window:
        hint = "give it in tokens: Budget(window=32_000); only a Policy takes it from its model"
        raise BadInput("the budget has no window", place="budget", hint=hint)
    room = budget.window - reserve(budget, head)
    if budget.input is not None:
        room = min(room, budget.input)
    return room


def spare_steps(budget: Budget, room: int) -> Sparing:
    """The steps that the budget asks to spare, or else a share of the room."""
    if budget.keep_last is not None:
        return Sparing(steps=budget.keep_last)
    return Sparing(tokens=_share_of(room, SPARED), largest=room // SPARED_RESULT_PART)


def reserve(budget: Budget, head: RequestHead) -> int:
    """The budget's reserve, or else the request's limit of output, or else a share of the window.

    A limit of more than half of the window was meant for a larger one. It does not take the room from the
    request: only the usual share is reserved, and a request that is cut is sent with a lower limit if its
    API refuses one that does not fit beside it. If there are several limits, the largest counts.
    """
    if budget.reserve is not None:
        return budget.reserve
    limit = find_output_limit(head)
    if limit and limit <= budget.window // 2:
        return limit
    return min(RESERVE, budget.window // RESERVED_PART)


def describe_reserve(budget: Budget, head: RequestHead) -> str:
    """Why more or less of the window is kept free for the answer than usual; "" if it is not."""
    if budget.reserve is not None:
        return ""
    limit = find_output_limit(head)
    reserved = reserve(budget, head)
    kept_free = f"{reserved:,} of {budget.window:,} tokens are kept free for the answer"
    if reserved < limit:
        return f"{kept_free}, though the request allows it {limit:,}"
    if reserved > budget.window // USUAL_PART:
        return f"{kept_free}, since the request allows it {limit:,}"
    return ""


def find_output_limit(head: RequestHead) -> int:
    """The largest limit of output that a request has as a parameter of its own, or 0."""
    limits = [0]
    for name in OUTPUT_LIMITS:
        value = head.parameters.get(name)
        if isinstance(value, int):
            limits.append(value)
    return max(limits)


def count_fixed(entries: Sequence[Entry], *, standing_tokens: int | None = None) -> int:
    """Tokens of what stands in a request however deep a cut goes, besides the last step.

    These are what no cut lowers, which may have been counted as `standing_tokens`, and what the user said
    before the first answer, if it is too long for a digest to quote.
    """
    tokens = standing_tokens
    if tokens is None:
        tokens = count_standing(entries)
    for entry in entries[: find_first_answer(entries)]:
        if is_long_message(entry) and not is_standing(entry):
            tokens += entry.tokens
    return tokens


def count_standing(entries: Iterable[Entry]) -> int:
    """Tokens of system text, pinned segments and the prompt, which no cut lowers."""
    return sum(entry.tokens for entry in entries if is_standing(entry))


def is_standing(entry: Entry) -> bool:
    """Whether an entry is system text, pinned, or the prompt."""
    return entry.layer in ALWAYS_SENT or entry.role is Role.SYSTEM or entry.segment.pinned


class Growth(NamedTuple):
    """What one of the last steps added, on average: tokens, and how many of them the user typed."""

    tokens: int = 0
    typed: int = 0


def measure_growth(entries: Sequence[Entry]) -> Growth:
    """How a conversation grows now.

    Only the last entries are looked at, so that a long log costs no more than a short one.
    """
    if not entries:
        return Growth()
    last_step = entries[-1].step
    recent: list[Entry] = []
    for entry in entries[-_ENTRIES_PER_STEP * STEPS :]:
        is_recent = entry.step > last_step - STEPS
        if is_recent and entry.layer is not Layer.SYSTEM:
            recent.append(entry)
    if not recent:
        return Growth()
    steps = last_step - recent[0].step + 1
    typed = sum(entry.tokens for entry in recent if is_users_text(entry))
    return Growth(tokens=sum(entry.tokens for entry in recent) // steps, typed=typed // steps)


def choose_target(
    room: int, trigger: int, growth: Growth, rates: Rates, *, fixed: int = 0, pricing: Pricing = BALANCED
) -> int:
    """The largest target at which the last token that stays costs no more than it spares.

    `fixed` is what no cut can free, in tokens.
    """
    grown = max(growth.tokens, 1)
    typed_share = min(growth.typed / grown, 1.0)
    fixed = min(fixed, trigger)
    least = fixed + (room - fixed) * LEAST_HISTORY // 100
    rewrite = max(rates.write - rates.read, 0)
    # From the highest down: the first target that pays for its last token leaves the most.
    for share in range(pricing.highest, pricing.lowest, -GRID):
        target = room * share // 100
        history = target - fixed
        if target >= trigger or history <= 0:
            continue
        costs = rates.read / 2 + rewrite * (trigger - fixed) * grown / (trigger - target) ** 2
        age = history / grown
        recall_costs = rates.read * (trigger + target) / 2 + rates.write * BACK
        spares_recalls = 0.0
        if share <= pricing.recalled:
            spares_recalls = pricing.named * NEED / (age * sqrt(age)) * recall_costs
        spares_wrong_answers = pricing.silent * typed_share
        if costs <= spares_recalls + spares_wrong_answers:
            return max(target, least)
    return max(room * pricing.lowest // 100, least)


def _share_of(room: int, share: float) -> int:
    """A share of the room in whole tokens, rounded down; in thousandths, so that every machine agrees."""
    return room * round(share * 1000) // 1000
