"""Counts exactly for OpenAI's newer models, offline, with the vocabulary that splintr carries.

What providers put around the text (`framing`) is measured, not exact. A vocabulary is loaded once per
process, when its counter is first needed.
"""

from __future__ import annotations

from functools import cache

import msgspec

from lamina.core.tokens import Counter
from lamina.models.counters import vocabularies
from lamina.models.framing import framing_for


@cache
def o200k() -> Counter:
    """GPT-4o and later, the o-series, gpt-oss: its o200k_harmony differs in special tokens only."""
    return msgspec.structs.replace(vocabularies.vocabulary("o200k_base"), framing=framing_for("gpt-5"))
