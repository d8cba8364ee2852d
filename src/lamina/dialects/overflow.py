"""Recognises an error that says a request is too long, and reads the limit from it.

Every API says it in its own words, so this is a list of them. This module knows messages and status codes,
and no SDK: whoever has another kind of error passes its status and its text. The words of llama.cpp are
tested against a real server. Those of the hosted APIs are taken from reports, and no test here has seen them.
"""

from __future__ import annotations

import re

import msgspec

STATUS = frozenset((400, 413, 422))
"""Statuses of a request that is too long. With others, words about tokens may be about rates, for example."""

LONGEST = 4000
"""Characters of a message that are read: some APIs quote the request in it."""


class Overflow(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was too long: the tokens that it had and may have, if the API says so."""

    asked: int | None = None
    limit: int | None = None

    def window(self, counted: int, *, otherwise: float) -> int:
        """The most that a counter may count for the next request, if it counted `counted` for this one.

        A counter that counts too little is corrected by what the API counted. If the API names no limit
        below what was counted, the share `otherwise` of it is used.
        """
        if self.limit is not None:
            api_count = max(self.asked or 0, counted)
            window = self.limit * counted // api_count
            if window < counted:
                return window
        return int(counted * otherwise)


def read_overflow(status: int | None, message: str) -> Overflow | None:
    """What an error says about the limit, or None if it is about something else.

    "maximum context length is 8192 tokens" is about the limit, "rate limit reached" is not.
    """
    text = message[:LONGEST]
    if status not in STATUS or not _TOO_LONG.search(text):
        return None
    for pattern in _NUMBERS:
        match = pattern.search(text)
        if match is not None:
            return Overflow(asked=int(match["asked"]), limit=int(match["limit"]))
    return Overflow()


_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size_error|request_too_large"
    r"|(?:prompt|input) is too long|\) is too long to fit into the model"
    r"|maximum (?:context|prompt|model) length|maximum number of tokens allowed"
    r"|(?:exceeds?|longer than) (?:the |its |this )?(?:model's |available |maximum )?context"
    r"|input tokens exceed|tokens? \+ `?max_new_tokens`? must be <="
    r"|exceeded model token limit|context window exceeds limit|prompt token count of|prompt too long"
    r"|greater than the context length|context length of only|reduce the length of the messages"
    r"|range of input length should be",
    re.IGNORECASE | re.ASCII,
)
"""Words that only an error about the length has: "prompt is too long: 210000 tokens > 200000 maximum"."""

_NUMBERS = tuple(
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        # request (9000 tokens) exceeds the available context size (8192 tokens)
        r"\((?P<asked>\d{1,9}) tokens\)[^(]{1,80}\((?P<limit>\d{1,9}) tokens\)",
        # prompt is too long: 210000 tokens > 200000 maximum
        r"(?P<asked>\d{1,9}) tokens > (?P<limit>\d{1,9})",
        # input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000
        r"context limit: (?P<asked>\d{1,9}) \+ \d{1,9} > (?P<limit>\d{1,9})",
        # This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens
        r"maximum (?:context|prompt) length is (?P<limit>\d{1,9})\D{1,80}(?P<asked>\d{1,9})",
        # exceeds the limit of 8192 tokens: it has 9000 tokens
        r"limit of (?P<limit>\d{1,9}) tokens\D{1,80}(?P<asked>\d{1,9}) tokens",
        # the prompt contains 9000 tokens … a model with 8192 maximum context
        r"contains (?P<asked>\d{1,9}) tokens.{1,80}with (?P<limit>\d{1,9}) maximum context",
        # The decoder prompt (total length 9000) is too long … (context length 8192)
        r"\(total length (?P<asked>\d{1,9})\).{1,60}\(context length (?P<limit>\d{1,9})\)",
        # The prompt (length 9000) is longer than the maximum model length of 8192
        r"\(length (?P<asked>\d{1,9})\).{1,60}maximum model length of (?P<limit>\d{1,9})",
        # Your request exceeded model token limit: 8192 (requested: 9000), at Kimi
        r"token limit: (?P<limit>\d{1,9}) \(requested: (?P<asked>\d{1,9})\)",
        # prompt token count of 9000 exceeds the limit of 8192, at GitHub
        r"token count of (?P<asked>\d{1,9}) exceeds the limit of (?P<limit>\d{1,9})",
        # Trying to keep the first 9000 tokens … context length of only 8192 tokens, in LM Studio
        r"first (?P<asked>\d{1,9}) tokens.{1,90}context length of only (?P<limit>\d{1,9})",
        # greater than the context length (n_keep: 9000>= n_ctx: 8192), in LM Studio too
        r"n_keep: (?P<asked>\d{1,9}) ?>= ?n_ctx: (?P<limit>\d{1,9})",
        # The input token count (9000) exceeds the maximum number of tokens allowed (8192)
        r"\((?P<asked>\d{1,9})\) exceeds[^(]{1,80}\((?P<limit>\d{1,9})\)",
    )
)
"""Where each API names the two numbers; above each pattern stands a message that it fits."""
