"""Lets counting always answer: surrogates are replaced, a panic of native code becomes the estimate.

Native tokenizers panic on some texts, with an exception that `except Exception` does not catch; one such
text must not cost a user the whole request. A text that could not be counted is estimated, and a warning
says so. The counter keeps its claims for all other texts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

from lamina.core.text.estimate import estimate_tokens

TextCount = Callable[[str], int]


def guard_count(count: TextCount, family: str) -> TextCount:
    """`count`, or the estimate of a family for a text at which it fails."""
    return partial(_count_or_estimate, count, family)


def without_surrogates(text: str) -> str:
    """Pairs joined, lone ones as U+FFFD: what UTF-8 can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _count_or_estimate(count: TextCount, family: str, text: str) -> int:
    """The count, or an estimate with a warning if the tokenizer fails: a request must not fail for it."""
    try:
        return count(text)
    except BaseException as error:
        if not _is_failure(error):
            raise
        warnings.warn(
            f"a text of {len(text):,} characters is estimated: its tokenizer failed with {error!r:.80}",
            RuntimeWarning,
            stacklevel=2,
        )
        return estimate_tokens(text, family=family)


def _is_failure(error: BaseException) -> bool:
    """Whether an error is the tokenizer's own: a panic of Rust is not an `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
