"""Reads the settings under which a session is built from an address, and derives its budget and rules."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lamina.caches import CacheRules, all_rules, rules_for
from lamina.core.values import Budget
from lamina.errors import BadInput

AS_RECORDED = "recorded"

LAMINA = "lamina"

POLICIES = {
    AS_RECORDED: "as it was sent",
    LAMINA: "as lamina would have sent it",
}

_RESERVED_PART = 8
"""One part in so many of the window is kept for the answer, as in the lab."""


MOST_DIGITS = 15
"""Digits of a number in an address: more than any count of tokens, requests or days has."""

MOST_SHOWN = 40
"""Characters of a wrong word that its error quotes."""


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Under what the session is built. `window` 0 is that of its model, `rules` "" those of its model."""

    policy: str = AS_RECORDED
    window: int = 0
    rules: str = ""

    @property
    def changes_requests(self) -> bool:
        """Whether other requests are sent than those that were recorded."""
        return self.policy != AS_RECORDED


def read_settings(query: Mapping[str, str]) -> BuildSettings:
    """Settings from the words of an address. A word that is not a number raises BadInput."""
    return BuildSettings(
        policy=query.get("policy") or AS_RECORDED,
        window=read_whole(query, "window") or 0,
        rules=query.get("rules", ""),
    )


def read_whole(query: Mapping[str, str], name: str, *, hint: str = "give a whole number") -> int | None:
    """A whole number in the query; None if it is absent or empty. Any other word raises BadInput."""
    word = query.get(name, "")
    if not word:
        return None
    return parse_whole(word, name, hint=hint)


def parse_whole(word: str, name: str, *, hint: str) -> int:
    """The number that a word of an address means. Any other word raises BadInput.

    `isdigit` alone is true of "²" and of digits of other scripts.
    """
    is_number = word.isascii() and word.isdigit()
    # Python refuses to read a number of more than 4,300 digits, and one of 400 is too large for a float.
    if not is_number or len(word) > MOST_DIGITS:
        raise BadInput(f"{name} is {word[:MOST_SHOWN]!r}", place=name, hint=hint)
    return int(word)


def make_budget(settings: BuildSettings, window_of_model: int, *, unrecorded: int = 0) -> Budget | None:
    """The budget of these settings; None if everything is sent as it was recorded.

    What the records do not have takes room, too, and so it is part of the reserve.
    """
    if settings.policy == AS_RECORDED:
        return None
    if settings.policy != LAMINA:
        raise BadInput(
            f"there is no policy {settings.policy!r}",
            place="policy",
            hint=f"use one of {', '.join(POLICIES)}",
        )
    window = settings.window or window_of_model
    return Budget(window=window, reserve=window // _RESERVED_PART + unrecorded)


def find_rules(name: str, model: str, dialect: str) -> CacheRules:
    if not name:
        return rules_for(model, dialect=dialect)
    if name not in all_rules():
        names = ", ".join(sorted(all_rules()))
        raise BadInput(f"there are no rules {name!r}", place="rules", hint=f"use one of {names}")
    return all_rules()[name]
