"""A line of the gateway's log about an answer, read back: what `account` and `lamina tail` are made of."""

from __future__ import annotations

import msgspec

from lamina.caches import rules_for
from lamina.dialects.usage import Usage


class AnsweredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log about an answer. `lamina.gateway.uncut_sizes` has what would be if nothing were cut.

    `full` is what `input` would be. `unchanged` of its tokens stand before the first thing that was lowered.
    As the gateway counts, the request has `counted` tokens, of which the request before it did not have `new`
    ones; `held_back` of these were shortened before they were ever sent. `gap` are the seconds since the
    request before it.

    `recalled`: the model recalled something, and the gateway sent the request once more. Without the gateway
    there would be nothing to recall. `parent` is the conversation that this one was forked from: some clients
    change the last message of each request. `agent_of` is the client's id of the conversation whose sub-agent
    asked, "" if it was no sub-agent. `window` is the one that it was fitted into, and `window_source` where
    that comes from (`lamina.gateway.sizes`). `tier` is how the call was served (`lamina.dialects.usage`).
    """

    id: str = ""
    at: float | None = None
    conversation: str
    parent: str = ""
    agent_of: str = ""
    model: str
    dialect: str = ""
    input: int
    full: int = 0
    unchanged: int = 0
    counted: int = 0
    new: int = 0
    held_back: int = 0
    gap: float = 0.0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    tier: str = ""
    cut: bool = False
    recalled: bool = False
    window: int = 0
    window_source: str = ""

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.input,
            cached=self.cached,
            written=self.written,
            written_long=self.written_long,
            output=self.output,
            tier=self.tier,
        )

    @property
    def process(self) -> str:
        """What the ids of one gateway process begin with."""
        return self.id.rpartition("-")[0]

    @property
    def was_cut(self) -> bool:
        """Whether this request, or one before it in its conversation, was cut."""
        return self.cut or self.full > self.input

    @property
    def is_idle(self) -> bool:
        """Whether the request came so late that a cache of the usual lifetime had forgotten the last one."""
        if self.written_long:
            return False
        lifetime = rules_for(self.model).seconds("")
        return 0 < lifetime < self.gap
