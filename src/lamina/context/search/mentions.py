"""Finds the speakers and dates that a question mentions: "What did Ana say in May 2023?".

Days are ISO text, and so are months (`2023-05`) and years. A mention fits every time that begins with it. A
month or a day without a year fits every year. Words such as "yesterday" and "last spring" are not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Collection

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
_MONTH_NUMBERS = {month: number for number, month in enumerate(_MONTHS, 1)}
_MONTH_NUMBERS |= {month[:3]: number for number, month in enumerate(_MONTHS, 1)}
_MONTH_NUMBERS["sept"] = 9
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTH_NUMBERS, key=len, reverse=True))})"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_FORMS = [
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        rf"\b{_YEAR}-(?P<number>[01]\d)(?:-(?P<day>[0-3]\d))?(?!\d)",  # 2023-05-08, 2023-05
        rf"\b{_DAY}(?: of)? {_MONTH}\b(?:,? {_YEAR}\b)?",  # 8th of May 2023, 8 May
        rf"\b{_MONTH}[ -]{_DAY}\b(?:(?:, ?| |-){_YEAR}\b)?",  # May 8, 2023
        rf"\b{_MONTH},? {_YEAR}\b",  # May 2023
        rf"\b(?:in|of|since|during) {_MONTH}\b",  # in May
        rf"\b(?:in|of|since|during) {_YEAR}\b",  # since 2023
    )
]
_SELF = re.compile(r"\b(?:i|i'm|i've|my|me|mine)\b", re.IGNORECASE | re.ASCII)
_WORD = re.compile(f"[{ALPHANUMERIC}]+")

USER = "user"
ROLES = frozenset((USER, "assistant", "system", "tool"))
"""Speakers without a name. A question that has the word "user" does not mean one of them."""


def find_dates(text: str) -> tuple[str, ...]:
    """The dates in a text: `2023-05-08`, `2023-05`, `2023`, or `-05-08` and `-05` without a year."""
    mentioned: list[str] = []
    for form in _FORMS:
        for match in form.finditer(text):
            # blanked out, so that a later form does not find a part of the same date
            text = text[: match.start()] + " " * len(match[0]) + text[match.end() :]
            mentioned.append(_write_iso(match.groupdict()))
    return tuple(dict.fromkeys(mentioned))


def _write_iso(groups: dict[str, str | None]) -> str:
    """The date of a match, with those of year, month and day that it has.

    `2024-05` is a month, and `2024-05-03` a day of it: the longer a date, the fewer days it means.
    """
    parts = [groups.get("year") or ""]
    month = groups.get("number") or groups.get("month")
    if month:
        parts.append(f"{_month_number(month):02}")
    day = groups.get("day")
    if day:
        parts.append(f"{int(day):02}")
    return "-".join(parts)


def _month_number(month: str) -> int:
    """The number of a month that was written as a number or as a name, `05` or `May`."""
    if is_digits(month):
        return int(month)
    return _MONTH_NUMBERS[lower_ascii(month)]


def falls_on(at: str, mentioned: str) -> bool:
    """Whether an ISO time is in the day, month or year that was mentioned."""
    if mentioned.startswith("-"):
        return at[len("2023") :].startswith(mentioned)
    return at.startswith(mentioned)


def find_speakers(text: str, speakers: Collection[str]) -> frozenset[str]:
    """The speakers whose name a text mentions, by any word of it. "I" and "my" mention the user."""
    words = set(_WORD.findall(fold_case(text)))
    people: set[str] = set()
    for speaker in speakers:
        # roles such as "assistant" are ordinary words, and mention nobody
        if speaker in ROLES:
            continue
        names = split_words(fold_case(speaker))
        if not words.isdisjoint(names):
            people.add(speaker)
    if people or USER not in speakers:
        return frozenset(people)
    if _SELF.search(text):
        return frozenset((USER,))
    return frozenset()
