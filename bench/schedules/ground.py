"""What an oracle knows of one conversation in one window: its growth, its gaps, what each cut would leave.

A cut is planned from a fresh ledger, as if it were the first: that makes its outcome a function of the call
and the depth alone. It knows no prices.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, takewhile
from typing import Any

import msgspec

from lamina.core.admit import HISTORY_PART
from lamina.core.build import build
from lamina.core.entries import begins_with
from lamina.core.layout import Layout
from lamina.core.lowering import CHARACTERS_PER_TOKEN, compact_entry
from lamina.core.options import Options
from lamina.core.scale import Scale, make_scale
from lamina.core.values import Budget, Entry, ToolResult
from lamina.dialects import DIALECTS
from lamina.dialects.translate import choose_options
from lamina.errors import LaminaError
from lamina.fitting.policy import Policy
from lamina.fitting.request import RequestMemo, fit_request
from lamina.replay.message_sizes import MessageSize
from lamina.replay.model_calls import CHAT, RecordedConversation
from lamina.replay.needed_names import NeededTerms
from lamina.replay.outcomes import PACE
from lamina.replay.policies.port import Setting

GRID = 20
"""Depths are whole parts of the room: one in so many."""


class Left:
    """What is sent from a cut on, until the next: the messages that it leaves, and what was said since.

    `call` is the number of the call, 0 where nothing was ever cut; `depth` counts parts of the room.
    """

    def __init__(self, ground: Ground, call: int, depth: int, messages: list[MessageSize]) -> None:
        self.call, self.depth, self.messages = call, depth, messages
        self.sums = list(accumulate((m.tokens for m in messages), initial=ground.tool_tokens))
        self.sizes = [self.sums[-1] + ground.sizes[j] - ground.sizes[call] for j in range(call, ground.calls)]
        self.fits = call + sum(1 for _ in takewhile(lambda size: size <= ground.limit, self.sizes))
        self.hidden = list(accumulate(self._hidden(ground), initial=0))

    def size(self, call: int) -> int:
        """Tokens of the request of a later call."""
        return self.sizes[call - self.call]

    def missed(self, until: int) -> int:
        """Terms that answers needed and could not see, from the cut on and before call `until`."""
        return self.hidden[until - self.call]

    def _hidden(self, ground: Ground) -> Iterator[int]:
        if not self.depth:
            yield from (0 for _ in self.sizes)
            return
        text, end = "\n".join(m.words for m in self.messages), ground.ends[self.call]
        found: dict[str, bool] = {}
        for call in range(self.call, ground.calls):
            missed = 0
            for term, last in ground.terms[call] if call < self.fits else ():
                if 0 <= last < end:
                    if term not in found:
                        found[term] = term in text
                    missed += not found[term]
            yield missed


class Ground:
    """One conversation in one window."""

    def __init__(self, talk: RecordedConversation, setting: Setting, needs: NeededTerms) -> None:
        self.talk, self.setting = talk, setting
        self.message_sizes, self.room = setting.message_sizes, setting.room
        self.tool_tokens, self.calls = self.message_sizes.tool_tokens, len(talk.calls)
        self.ends = [call.end for call in talk.calls]
        self.memo = RequestMemo()
        self.limit = setting.room
        self.said = self._measure(self._entered())
        sums = list(accumulate((m.tokens for m in self.said), initial=self.tool_tokens))
        self.sizes = [sums[end] for end in self.ends]
        self.idle = list(_gaps(talk))
        self.terms = [
            [(term, self._last(term, end)) for term in sorted(terms)]
            for terms, end in zip(needs.by_call, self.ends, strict=True)
        ]
        system = takewhile(lambda m: m.get("role") in ("system", "developer"), talk.messages)
        self.head = sums[sum(1 for _ in system)]
        self.uncut = Left(self, 0, 0, self.said[: self.ends[0]])
        self._left: dict[tuple[int, int], Left | None] = {}

    def left(self, call: int, depth: int) -> Left | None:
        """What a cut at this call to this depth leaves; None where it would lower nothing."""
        place = (call, depth)
        if place not in self._left:
            self._left[place] = self._cut(call, depth)
        return self._left[place]

    def planned(self) -> list[Left]:
        """Everything that `left` found so far."""
        return [left for left in self._left.values() if left is not None]

    def kept(self, before: Left, after: Left) -> int:
        """Tokens at the beginning that a cut does not change."""
        same = _same(before.messages, after.messages)
        if same == len(before.messages):
            since = self.said[self.ends[before.call] : self.ends[after.call]]
            same += _same(since, after.messages[same:])
        return after.sums[same]

    def _measure(self, messages: list[dict[str, Any]]) -> list[MessageSize]:
        return [self.message_sizes.measure(message) for message in messages]

    def _cut(self, call: int, depth: int) -> Left | None:
        if self.sizes[call] * GRID <= depth * self.room:
            return None
        budget = share_of(self.setting, trigger=depth / GRID, target=depth / GRID)
        try:
            fitted = fit_request(
                self.talk.request(self.talk.calls[call]),
                dialect=CHAT,
                budget=budget,
                memo=self.memo,
                policy=Policy(counter=self.message_sizes.counter, rules=self.setting.rules),
            )
        except LaminaError:
            return None
        if fitted.envelope.cut is None or not fitted.envelope.cut.lowered:
            return None
        return Left(self, call, depth, self._measure(fitted.request["messages"]))

    def _entered(self) -> list[dict[str, Any]]:
        """The messages as they enter: those that do not fit beside the rest are shortened on arrival.

        The library counts a little more than the lab does: `limit` is the room in tokens of the lab.
        """
        messages, last = self.talk.messages, self.talk.calls[-1]
        chat = DIALECTS[CHAT]
        parsed = chat.wire.parse(self.talk.request(last))
        options = choose_options(chat, parsed.head, layout=Layout(context="logged"))
        counter = self.message_sizes.counter
        envelope = build(parsed.log, head=parsed.head, counter=counter, options=options)
        scale = make_scale(counter, parsed.head, None, {})
        most = self.room - self.room // HISTORY_PART  # the most that one result can have
        entries = [_enter(entry, most, scale, options) for entry in envelope.entries]
        entered = msgspec.structs.replace(envelope, entries=tuple(entries))
        sent: list[dict[str, Any]] = chat.wire.render(entered)["messages"]
        tokens = scale.total(sum(entry.tokens for entry in entries))
        self.limit = self.room * self.message_sizes.count_tokens(sent) // max(tokens, 1)
        return [*sent, *messages[last.end :]] if len(sent) == last.end else messages

    def _last(self, term: str, end: int) -> int:
        return next((at for at in range(end - 1, -1, -1) if term in self.said[at].words), -1)


def _enter(entry: Entry, most: int, scale: Scale, options: Options) -> Entry:
    """The entry as it enters a request: a result with more than `most` tokens is shortened."""
    if entry.tokens <= most or not begins_with(entry.parts, ToolResult):
        return entry
    limit = most * CHARACTERS_PER_TOKEN
    lowered, _ = compact_entry(entry, "large", wording=options.wording, scale=scale, most=most, limit=limit)
    return msgspec.structs.replace(lowered, tokens=entry.tokens - scale.gain(entry, lowered))


def share_of(setting: Setting, *, trigger: float, target: float) -> Budget:
    """The budget of a cut that is made whenever the request is above `trigger`, however little it frees."""
    reserve = setting.window - setting.room
    return Budget(window=setting.window, reserve=reserve, trigger=trigger, target=target)


def _same(before: list[MessageSize], after: list[MessageSize]) -> int:
    pairs = zip(before, after, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))


def _gaps(talk: RecordedConversation) -> Iterator[float]:
    """Seconds before each call."""
    before, now = 0.0, 0.0
    for number, call in enumerate(talk.calls):
        now = now + PACE if call.at is None else call.at
        yield max(now - before, 0.0) if number else 0.0
        before = now
