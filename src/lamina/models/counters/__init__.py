"""Counters by model: exact if the vocabulary is at hand, else measured, else the estimate.

A counter that says `exact` counts text as the model's own tokenizer does. The framing around the text
is the measured one of the model's family, whichever way the text is counted.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from lamina.core.tokens import Counter, estimate_for
from lamina.errors import BadInput
from lamina.models.counters import claude, openai, vocabularies
from lamina.models.counters.tokenizer_files import from_file
from lamina.models.facts import newer_than
from lamina.models.framing import framing_for, longest_prefix
from lamina.models.names import own_name

__all__ = ["counter_for", "from_file"]


@lru_cache(maxsize=256)
def counter_for(model: str) -> Counter:
    """The best counter that there is for a model of any provider. Unknown models get an estimate.

    A model that is newer than all in the table is counted as the nearest one is, with no claim.
    """
    nearest = newer_than(model)
    if not nearest:
        return _counter_by_name(model)
    return msgspec.structs.replace(_counter_by_name(nearest), exact=False, measured=False)


def _counter_by_name(model: str) -> Counter:
    counter = _text_counter(model)
    framing = framing_for(model)
    quick = counter.quick
    if quick is not None:
        quick = msgspec.structs.replace(quick, framing=framing)
    return msgspec.structs.replace(counter, framing=framing, quick=quick)


def _text_counter(model: str) -> Counter:
    """The counter of a vendor's own tokenizer, if it is installed, or else an estimate for its family."""
    for vendor in (openai, claude, vocabularies):
        try:
            counter: Counter = vendor.for_model(model)
        except (BadInput, ImportError):  # another vendor's model, or an extra that is not installed
            continue
        return counter
    prefix = longest_prefix(own_name(model), _FAMILIES)
    return estimate_for(_FAMILIES.get(prefix, "unknown"))


_FAMILIES = {
    prefix: family
    for prefixes, family in (
        ("gpt-4 gpt-3.5 gpt-35 text-embedding", "cl100k"),  # where splintr is not installed
        ("gpt-4o gpt-4.1 gpt-4.5", "o200k"),
        ("claude", "claude_bound"),
        ("claude-2 claude-3 claude-instant claude-opus-4 claude-sonnet-4 claude-haiku-4", "claude3_bound"),
        ("claude-opus-4-7 claude-opus-4.7 claude-opus-4-8 claude-opus-4.8", "claude_bound"),
        ("gemini gemma", "gemini"),
        ("llama meta-llama", "llama3"),
        ("qwen qwq", "qwen3"),
        ("deepseek", "deepseek"),
        ("mistral mixtral ministral codestral devstral magistral pixtral", "mistral"),
    )
    for prefix in prefixes.split()
}
