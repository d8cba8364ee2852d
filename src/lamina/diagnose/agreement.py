"""Compares a provider's own reason for a cache miss with lamina's cause, and explains where they must differ.

Providers name the part of a request that differs, in a few words. lamina names a cause and a place. So both
are read as a part: the model, the tools, the system text, the messages, a setting, the routing key. Where a
provider cannot name what lamina found (no provider names a lifetime that ended), the difference is explained.
What is left is a finding: either lamina or its rules of that cache are wrong.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

import msgspec

from lamina.caches import CacheRules
from lamina.diagnose.differences import diff
from lamina.diagnose.values import SETTING_CAUSES, Difference
from lamina.dialects.cache_reports import HIT, UNDECIDED, CacheReport
from lamina.dialects.port import Dialect

Verdict = Literal["agrees", "explained", "differs", "undecided"]
"""What a comparison of the two says.

- `agrees`: both name the same part, or both say that nothing broke the prefix.
- `explained`: they differ, and the provider's page says why they must.
- `differs`: a finding.
- `undecided`: the provider did not compare the two requests.
"""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's word beside lamina's part of the request. `why` is a sentence."""

    verdict: Verdict
    provider: str
    own: str
    why: str = ""


_PARTS_OF_CAUSES = MappingProxyType(
    {
        **{cause: name for name, cause in SETTING_CAUSES.items()},
        "none": "nothing",
        "model changed": "model",
        "dialect changed": "model",
        "key changed": "key",
        "tenant changed": "key",
        "cached content changed": "key",
        "system changed": "system",
        "memory changed": "system",
        "tools changed": "tools",
        "tools reordered": "tools",
        "tool added": "tools",
        "tool removed": "tools",
        "expired": "lifetime",
        "no breakpoint": "markers",
        "breakpoint removed": "markers",
        "breakpoint moved": "markers",
        "lifetimes rise": "markers",
        "out of look-back": "markers",
        "too many breakpoints": "markers",
        "below the minimum": "markers",
        "thinking stripped": "thinking",
    }
)
"""Causes whose part does not depend on where they stand."""

_NAMED_PARTS: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {
        HIT: frozenset(("nothing",)),
        # the speed is a part of it, says the page of Anthropic
        "model_changed": frozenset(("model", "speed")),
        "system_changed": frozenset(("system",)),
        # a search on the web is a tool of the server
        "tools_changed": frozenset(("tools", "web_search")),
        "messages_changed": frozenset(("messages", "images", "citations")),
        # OpenAI has no word for its instructions, which are a part of the input
        "input_changed": frozenset(("messages", "system", "images")),
        "context_compacted": frozenset(("messages",)),
        "prompt_cache_key_changed": frozenset(("key",)),
        "text_format_changed": frozenset(("format",)),
        "reasoning_effort_changed": frozenset(("effort", "thinking")),
        "verbosity_changed": frozenset(("verbosity",)),
        "service_tier_changed": frozenset(("tier",)),
    }
)
"""The parts that each word of a provider stands for."""

_NOT_COMPARED = MappingProxyType(
    {
        "lifetime": "the provider compares what was sent, not how long ago: its entry had ended",
        "markers": "the provider compares what was sent, not which places of it were marked",
        "images": "the first image changes how all messages are read, and no message that was sent before",
        "thinking": "the model leaves earlier thinking out by a rule of its own, which is no change",
    }
)
"""What no provider's comparison looks at, and why."""


def part_of(difference: Difference) -> str:
    """The part of a request in which a difference stands.

    That is "model", "tools", "system", "messages", "key", a name of `stream.SETTINGS`, "lifetime", "markers",
    or "nothing".
    """
    part = _PARTS_OF_CAUSES.get(difference.cause)
    if part is not None:
        return part
    place = difference.place
    if place.startswith("tools"):
        return "tools"
    if place.startswith(("system", "instructions", "config.system", "systemInstruction")):
        return "system"
    return "messages"


def check_report(
    report: CacheReport,
    before: Any,
    after: Any,
    *,
    rules: CacheRules,
    gap: float | None = None,
    tokens: int | None = None,
    dialect: str | Dialect | None = None,
) -> tuple[Difference, Agreement]:
    """Compare two requests, and what a provider reported for the later one with what that shows.

    The arguments are those of `diff`. The rules of a cache name what breaks it first, such as a lifetime that
    ended. A provider compares contents alone. So if the two differ, the contents are compared alone, too.
    """
    difference = diff(before, after, rules=rules, gap=gap, tokens=tokens, dialect=dialect)
    agreement = compare_causes(report, difference)
    if agreement.verdict != "differs":
        return difference, agreement
    content = diff(before, after, tokens=tokens, dialect=dialect)
    if compare_causes(report, content).verdict == "agrees":
        why = f"the contents differ as the provider says; lamina names what costs first: {agreement.own}"
        agreement = msgspec.structs.replace(agreement, verdict="explained", why=why)
    return difference, agreement


def compare_causes(report: CacheReport, difference: Difference) -> Agreement:
    """Compare what a provider reported for a request with lamina's own comparison of the same two."""
    own = part_of(difference)
    verdict, why = _judge_parts(report.cause, own, difference.place)
    return Agreement(verdict=verdict, provider=report.cause, own=own, why=why)


def _judge_parts(provider: str, own: str, place: str) -> tuple[Verdict, str]:
    """What the provider's word says about lamina's part of the request, and why."""
    if provider in UNDECIDED:
        if provider == "unavailable" and own in SETTING_CAUSES:
            return "explained", "the provider has no word for a changed setting, and says that it cannot tell"
        return "undecided", "the provider did not compare the two requests"
    if own in _NAMED_PARTS.get(provider, frozenset()):
        return "agrees", ""
    # a provider that found nothing looks at less than what decides whether a cache is read
    if provider == HIT and own in _NOT_COMPARED:
        return "explained", _NOT_COMPARED[own]
    sentence = f"the provider says {provider}, lamina finds the first difference in: {own}"
    if place:
        sentence += f", at {place}"
    return "differs", sentence


class AgreementRate(msgspec.Struct, kw_only=True):
    """How often a provider and lamina agreed, over many requests. Undecided ones count for neither."""

    agreed: int = 0
    explained: int = 0
    differed: int = 0
    undecided: int = 0

    def add(self, verdict: str) -> None:
        """Count one verdict. A word of another release is not counted."""
        match verdict:
            case "agrees":
                self.agreed += 1
            case "explained":
                self.explained += 1
            case "differs":
                self.differed += 1
            case "undecided":
                self.undecided += 1

    @property
    def compared(self) -> int:
        """How many requests the provider and lamina both compared with the one before."""
        return self.agreed + self.explained + self.differed

    def __str__(self) -> str:
        """The rate in words, "" if the provider compared nothing."""
        if not self.compared and not self.undecided:
            return ""
        if not self.compared:
            return f"the provider compared none of {self.undecided:,} requests"
        share = self.agreed / self.compared
        words = f"{self.agreed:,} of {self.compared:,} agree with the provider's own reason ({share:.0%})"
        if self.explained:
            words += f", {self.explained:,} differ for a known reason"
        if self.differed:
            words += f", {self.differed:,} differ"
        return words
