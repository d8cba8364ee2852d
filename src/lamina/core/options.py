"""What every stage of one build works with: the options, the scale, the ledger, the root of the stream."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lamina.core.arrange import Layout
from lamina.core.bound_thinking import Binding
from lamina.core.cut_target import DEFAULT as RATES
from lamina.core.cut_target import Rates
from lamina.core.history_window import LastN
from lamina.core.kinds import KINDS, Kinds
from lamina.core.orders import Order, ladder
from lamina.core.repair import AS_IS, Repairs
from lamina.core.scale import Scale
from lamina.core.values import Digest, Ledger, Segment
from lamina.core.wording import PLAIN, Wording

_IN_PLACE = Layout()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a build may be told beyond its budget.

    `binding` says what a changed past does to thinking; `salt` keeps tenants' prefix hashes apart;
    `carries` why a segment cannot be said where this request goes, "" if it can. `window` keeps history to
    its last messages. `opening` is what a wire format says in the place of the user's first message where the
    assistant begins.
    """

    layout: Layout = _IN_PLACE
    repairs: Repairs = AS_IS
    kinds: Kinds = KINDS
    wording: Wording = PLAIN
    order: Order = ladder
    rates: Rates = RATES
    binding: Binding = "none"
    salt: str = ""
    carries: Callable[[Segment], str] | None = None
    window: LastN | None = None
    opening: str = ""

    def __post_init__(self) -> None:
        if self.wording.kinds is not self.kinds:  # one table for all stages
            wording = msgspec.structs.replace(self.wording, kinds=self.kinds)
            msgspec.structs.force_setattr(self, "wording", wording)


DEFAULT = Options()


class BuildContext(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of one build, laid out once."""

    options: Options
    scale: Scale
    ledger: Ledger
    root: Digest

    @property
    def kinds(self) -> Kinds:
        return self.options.kinds

    @property
    def wording(self) -> Wording:
        return self.options.wording
