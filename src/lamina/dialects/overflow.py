"""Whether an API refused a request as too long, and what it said about the limit.

Every API says it in its own words, so this is a list of them. It knows messages and status codes, and no
SDK: who has an error of another kind passes its status and its text. llama.cpp's words are tested
against a real server; those of the hosted APIs are as they are reported, and not seen in a test here.
"""

from __future__ import annotations

import re

import msgspec

STATUS = frozenset((400, 413, 422))
"""Too long is the request's fault: with another status, words about tokens are about rates, for one."""

LONGEST = 4000
"""Characters of a message that are read: some APIs quote the request in it."""


class Overflow(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was too long: how many tokens it had and how many it may have, where the API says so."""

    asked: int | None = None
    limit: int | None = None

    def window(self, counted: int, *, otherwise: float) -> int:
        """What a counter that counted `counted` for this request may count for the next one, at most.

        A counter that said too little is held to what the API counted; where the API gives no limit below
        what was asked, the share `otherwise` is left.
        """
        if self.limit is not None:
            window = self.limit * counted // max(self.asked or 0, counted)
            if window < counted:
                return window
        return int(counted * otherwise)


def overflow(status: int | None, message: str) -> Overflow | None:
    """What an error says of the limit, or None if it is about something else."""
    text = message[:LONGEST]
    if status not in STATUS or not _SAID.search(text):
        return None
    found = next((match for pattern in _NUMBERS if (match := pattern.search(text))), None)
    if found is None:
        return Overflow()
    return Overflow(asked=int(found["asked"]), limit=int(found["limit"]))


_SAID = re.compile(
    r"context_length_exceeded|exceed_context_size_error|request_too_large"
    r"|(?:prompt|input) is too long|\) is too long to fit into the model"
    r"|maximum (?:context|prompt|model) length|maximum number of tokens allowed"
    r"|(?:exceeds?|longer than) (?:the |its |this )?(?:model's |available |maximum )?context"
    r"|input tokens exceed|tokens? \+ `?max_new_tokens`? must be <=",
    re.IGNORECASE | re.ASCII,
)

_NUMBERS = tuple(
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        r"\((?P<asked>\d{1,9}) tokens\)[^(]{1,80}\((?P<limit>\d{1,9}) tokens\)",
        r"(?P<asked>\d{1,9}) tokens > (?P<limit>\d{1,9})",
        r"context limit: (?P<asked>\d{1,9}) \+ \d{1,9} > (?P<limit>\d{1,9})",
        r"maximum (?:context|prompt) length is (?P<limit>\d{1,9})\D{1,80}(?P<asked>\d{1,9})",
        r"limit of (?P<limit>\d{1,9}) tokens\D{1,80}(?P<asked>\d{1,9}) tokens",
        r"contains (?P<asked>\d{1,9}) tokens.{1,80}with (?P<limit>\d{1,9}) maximum context",
        r"\(total length (?P<asked>\d{1,9})\).{1,60}\(context length (?P<limit>\d{1,9})\)",
        r"\(length (?P<asked>\d{1,9})\).{1,60}maximum model length of (?P<limit>\d{1,9})",
        r"\((?P<asked>\d{1,9})\) exceeds[^(]{1,80}\((?P<limit>\d{1,9})\)",
    )
)
