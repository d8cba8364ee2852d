"""Speakers and dates that a question mentions: "What did Ana say in May 2023?".

Days are ISO text, months (`2023-05`) and years too: a mention fits a time that begins with it. A
month or a day without a year fits every year. What is not written as a date (yesterday, last spring) is
not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lamina.core.text.characters import ALPHANUMERIC, fold_case, is_digits, lower_ascii, split_words

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_NAMES = {month[:size]: number for number, month in enumerate(_MONTHS, 1) for size in (3, len(month))}
_NAMES["sept"] = 9
_MONTH = rf"(?P<month>{'|'.join(sorted(_NAMES, key=len, reverse=True))})"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_FORMS = [
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        rf"\b{_YEAR}-(?P<number>[01]\d)(?:-(?P<day>[0-3]\d))?(?!\d)",
        rf"\b{_DAY}(?: of)? {_MONTH}\b(?:,? {_YEAR}\b)?",
        rf"\b{_MONTH}[ -]{_DAY}\b(?:(?:, ?| |-){_YEAR}\b)?",
        rf"\b{_MONTH},? {_YEAR}\b",
        rf"\b(?:in|of|since|during) {_MONTH}\b",
        rf"\b(?:in|of|since|during) {_YEAR}\b",
    )
]
_SELF = re.compile(r"\b(?:i|i'm|i've|my|me|mine)\b", re.IGNORECASE | re.ASCII)
_WORD = re.compile(f"[{ALPHANUMERIC}]+")

USER = "user"
ROLES = frozenset((USER, "assistant", "system", "tool"))
"""Speakers without a name: a question that says "user" does not mean one of them."""


def dates(text: str) -> tuple[str, ...]:
    """The dates in a text: `2023-05-08`, `2023-05`, `2023`, or `-05-08` and `-05` where no year stands."""
    found: list[str] = []
    for form in _FORMS:
        for match in form.finditer(text):
            text = text[: match.start()] + " " * len(match[0]) + text[match.end() :]
            found.append(_iso(match.groupdict()))
    return tuple(dict.fromkeys(found))


def falls_on(at: str, mentioned: str) -> bool:
    """Whether an ISO time is in the day, month or year that was mentioned."""
    return at[4:].startswith(mentioned) if mentioned.startswith("-") else at.startswith(mentioned)


def named(text: str, speakers: Iterable[str]) -> frozenset[str]:
    """The speakers whose name a text has, by any word of it; "I" and "my" name the user."""
    words = set(_WORD.findall(fold_case(text)))
    people = {
        who for who in speakers if who and who not in ROLES and words & set(split_words(fold_case(who)))
    }
    return frozenset(people | ({USER} if not people and USER in speakers and _SELF.search(text) else set()))


def _iso(found: dict[str, str | None]) -> str:
    number = found.get("number") or found.get("month")
    parts = [found.get("year") or "", f"{_number(number):02}" if number else ""]
    if day := found.get("day"):
        parts.append(f"{int(day):02}")
    return "-".join(parts).rstrip("-")


def _number(month: str) -> int:
    return int(month) if is_digits(month) else _NAMES[lower_ascii(month)]
