"""Counting that always answers: surrogates are replaced, a panic of native code becomes the estimate.

Native tokenizers panic on some texts, with an exception that `except Exception` does not catch; one such
text must not cost a user the whole request. A text that could not be counted is estimated, and a warning
says so: the counter stays what it is for all the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

from lamina.core.text.estimate import estimate

Count = Callable[[str], int]


def guarded(count: Count, family: str) -> Count:
    """`count`, or the estimate of a family for a text at which it fails."""
    return partial(_guarded, count, family)


def without_surrogates(text: str) -> str:
    """Pairs joined, lone ones as U+FFFD: what UTF-8 can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _guarded(count: Count, family: str, text: str) -> int:
    try:
        return count(text)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        warnings.warn(
            f"a text of {len(text):,} characters is estimated: its tokenizer failed with {error!r:.80}",
            RuntimeWarning,
            stacklevel=2,
        )
        return estimate(text, family=family)
