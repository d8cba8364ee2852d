"""Measures a session of thousands of calls in one pass over its entries, if nothing in it is lowered.

Building every call takes a time that grows with the square of the length of a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from lamina.caches import Tally
from lamina.core.envelope import Envelope
from lamina.core.values import Layer, Ledger
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.errors import LaminaError
from lamina.inspector.built_values import BuiltCall, FormChange
from lamina.inspector.walk import SessionWalk, add_unrecorded, idle_between, price_call, turn_of
from lamina.replay.model_calls import CHAT
from lamina.replay.policies.lamina_policies import sum_layers

_CHECKED_CALLS = 5
"""Calls of a long session that are built, to see whether measuring it gives the same."""


def measure_calls(walk: SessionWalk) -> list[BuiltCall] | None:
    """Every call of a session that is sent as it was recorded, measured in one pass over its entries.

    Nothing is lowered there, so a request is the beginning of the last one, and its size is a sum. A few
    calls are built as well. None is returned if one of them differs, or if something would be lowered.
    """
    if walk.settings.changes_requests:
        return None
    conversation = walk.session.conversation
    parse_memo = ParseMemo()
    try:
        log = DIALECTS[CHAT].wire.parse(conversation.request(conversation.calls[-1]), memo=parse_memo).log
        envelope = walk.build_log(log, 0)
    except LaminaError:
        return None
    if len(envelope.entries) != len(log):
        return None  # something was repaired: sizes are no sums then
    entry_counts = list(map(len, parse_memo.past.groups))
    ends = list(accumulate(entry_counts, initial=0))  # [1, 2, 1] entries end at [0, 1, 3, 4]
    sums = _EntrySums(envelope)
    calls: list[BuiltCall] = []
    previous_time: float | None = None
    previous_tokens = 0
    for number, call in enumerate(conversation.calls):
        end = ends[call.end]
        idle = idle_between(previous_time, call.at)
        built = BuiltCall(
            number=number,
            call=call,
            at=call.at,
            idle=idle,
            ledger=Ledger(),
            tokens=sums.tokens_before(end),
            layers=sums.layers_before(end),
            entries=end,
            left_out=0,
            room=None,
            turn=turn_of(envelope.entries, end),
        )
        tally = _guess_tally(walk, built.tokens, previous_tokens, idle)
        calls.append(price_call(walk, built, add_unrecorded(tally, walk.unrecorded)))
        previous_tokens = built.tokens
        if call.at is not None:
            previous_time = call.at
    if not _are_as_built(walk, calls):
        return None
    _note_arrivals(walk, envelope, [ends[call.end] for call in conversation.calls])
    return calls


def _note_arrivals(walk: SessionWalk, envelope: Envelope, ends: Sequence[int]) -> None:
    """Keep for each entry the first call whose request it is in. `ends` says how many entries each has."""
    start = 0
    for number, end in enumerate(ends):
        for entry in envelope.entries[start:end]:
            walk.arrivals[entry.ref] = number
            walk.history[entry.ref] = [FormChange(number, entry.form.name, entry.why)]
        start = end


class _EntrySums:
    """Sums of tokens over the beginnings of a request, as a whole and by layer."""

    def __init__(self, envelope: Envelope) -> None:
        entries = envelope.entries
        self._entries = entries
        self._all = list(accumulate((entry.tokens for entry in entries), initial=0))
        self._fixed = envelope.account.total - self._all[-1]
        system = (entry.tokens * (entry.layer is Layer.SYSTEM) for entry in entries)
        self._system = list(accumulate(system, initial=0))
        prompts = (entry.tokens * (entry.segment.kind == "user") for entry in entries)
        self._prompts = list(accumulate(prompts, initial=0))
        self._turn_starts = self._find_turn_starts()

    def tokens_before(self, end: int) -> int:
        """The size of the request that ends before this entry, with its head."""
        return self._fixed + self._all[end]

    def layers_before(self, end: int) -> dict[str, int]:
        """Tokens by layer of the same request: what is older than its last turn is history.

        `end` is the number of entries that the request had.
        """
        if not end:
            return {}
        start = self._turn_starts[end - 1]
        prompt = self._prompts[end] - self._prompts[start]
        turn_system = self._system[end] - self._system[start]
        in_turn = self._all[end] - self._all[start] - turn_system
        layers = {
            Layer.SYSTEM.value: self._system[end],
            Layer.HISTORY.value: self._all[start] - self._system[start],
            Layer.PROMPT.value: prompt,
            Layer.STEPS.value: in_turn - prompt,
        }
        return {name: tokens for name, tokens in layers.items() if tokens}

    def _find_turn_starts(self) -> list[int]:
        """Where the turn of each entry begins: at the first entry with the same turn."""
        starts: list[int] = []
        for at, entry in enumerate(self._entries):
            start = at
            if at and entry.turn == self._entries[at - 1].turn:
                start = starts[-1]
            starts.append(start)
        return starts


def _guess_tally(walk: SessionWalk, tokens: int, previous_tokens: int, idle: float) -> Tally:
    """What a cache would read of a request that continues the last one: all of it, while it is remembered.

    A request that is shorter than the least that the cache stores is never read.
    """
    rules = walk.rules
    model = walk.session.conversation.trace.model
    read = 0
    if idle <= rules.seconds("") and previous_tokens >= rules.least(model):
        read = min(previous_tokens, tokens)
    if rules.write > 1:
        return Tally(read=read, written=tokens - read)
    return Tally(read=read, uncached=tokens - read)


def _are_as_built(walk: SessionWalk, calls: Sequence[BuiltCall]) -> bool:
    """Whether a few calls, built one by one, have the measured sizes.

    If one has not, the measured sizes are not used at all.
    """
    step = max(len(calls) // _CHECKED_CALLS, 1)
    for call in calls[::step]:
        request = walk.session.conversation.request(call.call)
        try:
            envelope = walk.build_log(DIALECTS[CHAT].wire.parse(request).log, 0)
        except LaminaError:
            return False
        if envelope.account.total != call.tokens:
            return False
        if sum_layers(envelope.entries) != call.layers:
            return False
    return True
