"""What every stage of one build works with: the options, the scale, the ledger, the root of the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import get_args

import msgspec

from lamina.core.bound_thinking import Binding
from lamina.core.cut_target import DEFAULT_RATES, Rates
from lamina.core.hashing import digest
from lamina.core.history_window import LastN
from lamina.core.kinds import KINDS, Kinds, check_kinds
from lamina.core.ladder import ladder
from lamina.core.layout import Layout
from lamina.core.orders import Order
from lamina.core.passages import PassageIndex
from lamina.core.repair import AS_IS, Repairs
from lamina.core.run_text import Reader
from lamina.core.scale import Scale
from lamina.core.tool_rules import ToolRules, check_tool_rules
from lamina.core.values import Digest, Ledger, Preference, Ref, RequestHead, Segment
from lamina.core.wording import PLAIN, Wording
from lamina.errors import BadInput

_IN_PLACE = Layout()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may choose for a build besides its budget.

    `rates` are the prices of the cache, by which the depth of a cut is chosen, and `prefer` says whether it
    would rather keep what was said, or tokens. `binding` says what a changed past does to thinking. `salt`
    keeps the prefix hashes of tenants apart. `carries` returns why a segment cannot be expressed in the
    format of this request, or "" if it can. `window` limits history to its last messages. `opening` is the
    text that a wire format puts in the place of the user's first message if the assistant speaks first.
    `late_system`: the API takes system text in the middle of a conversation. There a changed instruction
    stands where it came until the next cut; elsewhere it would lose its authority, so it replaces the old one
    at once, at a recorded cut.
    With `remind`, lowered passages that a prompt is about are quoted before it (`lamina.core.remind`).
    `tools` has what the caller decided about the results of single tools (`lamina.core.tool_rules`). With
    `keep_users` the user's messages count as pinned: no cut lowers them, and no digest stands for them.
    """

    layout: Layout = _IN_PLACE
    repairs: Repairs = AS_IS
    kinds: Kinds = KINDS
    wording: Wording = PLAIN
    order: Order = ladder
    rates: Rates = DEFAULT_RATES
    prefer: Preference = "balanced"
    binding: Binding = "none"
    salt: str = ""
    carries: Callable[[Segment], str] | None = None
    window: LastN | None = None
    opening: str = ""
    late_system: bool = True
    remind: bool = True
    tools: ToolRules = {}
    keep_users: bool = False

    def __post_init__(self) -> None:
        """Give the wording the table of kinds of these options: all stages must use the same one."""
        if self.prefer not in get_args(Preference):
            hint = f"it is one of {', '.join(get_args(Preference))}"
            raise BadInput(f"prefer is {self.prefer!r:.100}", place="Options", hint=hint)
        if self.tools != {}:
            check_tool_rules(self.tools, "Options")
        layout = self.layout
        check_kinds(self.wording.words, self.kinds, "words")
        check_kinds(layout.include.kinds, self.kinds, "include")
        check_kinds(layout.exclude.kinds, self.kinds, "exclude")
        check_kinds(layout.prior_limits, self.kinds, "prior_limits")
        if self.wording.kinds is not self.kinds:
            wording = msgspec.structs.replace(self.wording, kinds=self.kinds)
            msgspec.structs.force_setattr(self, "wording", wording)


DEFAULT_OPTIONS = Options()


def digest_settings(options: Options) -> Digest:
    """The digest of what a caller chose about layout and wording; "" if that is the usual.

    If it changes during a conversation, what was sent before is laid out or worded in another way. Functions
    are known by the kinds that they are for.
    """
    layout = options.layout
    wording = options.wording
    words = sorted(wording.words)
    is_usual = layout == _IN_PLACE and not (wording.tagged or words) and wording.handles
    if is_usual:
        return Digest("")
    plain_layout = msgspec.to_builtins(layout, order="deterministic")
    return digest((plain_layout, wording.tagged, wording.handles, wording.named, words))


Phase = Callable[[str], AbstractContextManager[None]]
"""Measures one phase of a build, by its name: the clock is the caller's."""


def not_measured(_: str) -> AbstractContextManager[None]:
    """For a caller who does not want to know how long a phase takes."""
    return nullcontext()


class BuildContext(msgspec.Struct, frozen=True, kw_only=True):
    """What all stages of one build share.

    `ledger` is the ledger of the previous build. `cold`: so much time has passed that the provider's cache
    has forgotten the previous request. `widened`: a narrower window had taken out what this one sends again.
    `phase` measures how long the library and a cut take. `find_reader` gives a cut what earlier ones have
    read.
    """

    options: Options
    head: RequestHead
    scale: Scale
    ledger: Ledger
    root: Digest
    find_reader: Callable[[], Reader]
    find_passages: Callable[[Sequence[Ref]], PassageIndex]
    cold: bool = False
    widened: bool = False
    phase: Phase = not_measured

    @property
    def kinds(self) -> Kinds:
        """The table of kinds of this build."""
        return self.options.kinds

    @property
    def wording(self) -> Wording:
        """How this build words what it sends."""
        return self.options.wording

    @property
    def binds_thinking(self) -> bool:
        """Whether a changed past does something to thinking."""
        return self.options.binding != "none"
