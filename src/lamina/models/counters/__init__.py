"""Counters by model: exact if the vocabulary is at hand, else measured, else the estimate.

A table says which vocabulary a model has, and what may be claimed for it. `exact` means that the reference of
that very model agreed with the vocabulary on the corpus of bench/counting.py, text for text; `measured` that
the counts fit usage that the provider reported. A model with neither has the vocabulary that comes nearest.
notes/counting.md has the evidence. The framing around the text is the measured one of the model's family,
whichever way the text is counted.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import Literal

import msgspec

from lamina.core.tokens import Counter, estimate_for
from lamina.errors import BadInput
from lamina.models.counters import claude
from lamina.models.counters.tokenizer_files import from_file
from lamina.models.counters.vocabularies import vocabulary as load_vocabulary
from lamina.models.facts import model_or_none, nearest_name
from lamina.models.framing import framing_for, longest_prefix
from lamina.models.names import own_name

__all__ = ["counter_for", "from_file"]


@lru_cache(maxsize=256)
def counter_for(model: str) -> Counter:
    """The best counter that there is for a model of any provider. Unknown models get an estimate.

    A model that is counted as the nearest one in the table of models has no claim: `kimi-k4` as `kimi-k3`,
    `gpt-5.7` as `gpt-5.6`. Its own name decides if the vocabularies know more of that: `gemma-2-9b`.
    """
    nearest = nearest_name(model)
    prefix = _find_prefix(nearest)
    own_prefix = _find_prefix(model)
    if nearest == model or (own_prefix != prefix and len(own_prefix) >= len(prefix)):
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
    """The counter of a model's own vocabulary, if that is installed, or else an estimate for its family."""
    prefix = _find_prefix(model)
    vocabulary, claim = _VOCABULARIES.get(prefix, ("", ""))
    generation = vocabulary.removeprefix(_CLAUDE)
    with suppress(BadInput, ImportError):  # no vocabulary is known, or its extra is not installed
        if generation != vocabulary:
            counter = claude.version(generation)
        else:
            counter = load_vocabulary(vocabulary)
            if _WORD_GOES_ON.match(own_name(model), len(prefix)):
                claim = ""
        return msgspec.structs.replace(counter, exact=claim == "exact", measured=claim == "measured")
    row = model_or_none(model)
    if row is None:
        return estimate_for("unknown")
    if row.family.startswith("claude"):  # nobody has its vocabulary, so the estimate is a bound
        return estimate_for(f"{row.family}_bound")
    return estimate_for(row.family)


def _find_prefix(model: str) -> str:
    return longest_prefix(own_name(model), _VOCABULARIES)


_WORD_GOES_ON = re.compile(r"[a-z0-9]")  # `qwen3x` is another model than `qwen3`

_CLAUDE = "ctok-"
"""How the table names a generation of Claude's tokenizers."""

Claim = Literal["exact", "measured", ""]

_ROWS: tuple[tuple[str, str, Claim], ...] = (
    ("gpt-4o chatgpt-4o gpt-4.1 gpt-4.5 gpt-5 gpt-oss o1 o3 o4", "o200k_base", "exact"),
    ("gpt-4 gpt-3.5 gpt-35 text-embedding", "cl100k_base", "exact"),
    ("gpt-6", "o200k_base", ""),  # its encoding is not published
    # What ctok 1.3 says of itself (read 2026-11-15) and recorded usage confirms. Opus 4.7 differs from 4.8
    # only in the frame.
    ("claude", "ctok-4.8", ""),
    ("claude-2 claude-instant claude-v", "", ""),
    ("claude-3 claude-opus-4 claude-sonnet-4 claude-haiku-4", "ctok-3.0", "measured"),
    ("claude-opus-4-7 claude-opus-4.7 claude-opus-4-8 claude-opus-4.8", "ctok-4.8", "measured"),
    ("claude-sonnet-5 claude-fable-5", "ctok-4.8", "measured"),
    ("claude-sonnet-5- claude-sonnet-5. claude-fable-5- claude-fable-5.", "ctok-4.8", ""),
    ("claude-sonnet-5-20 claude-fable-5-20", "ctok-4.8", "measured"),  # a date, not a version
    ("gemini", "gemma2", ""),
    ("gemini-3-pro", "gemma2", "measured"),
    # Google's SDK (google-genai 3.1) counts these with Gemma 4's; it names Gemma 3's for the ones above,
    # where Gemma 2's fits reported usage better.
    ("gemini-3.1 gemini-3.5 gemini-3.6 gemini-3.7 gemini-3.8 gemini-4", "gemma4", ""),
    ("gemma gemma2 gemma-2", "gemma2", ""),
    ("gemma3 gemma-3", "gemma3", ""),
    ("gemma4 gemma-4", "gemma4", ""),
    ("llama-3 llama3 meta-llama-3", "llama3", "exact"),
    ("llama-4 llama4", "o200k_base", ""),
    ("qwen qwen-2.5 qwen-3", "qwen3", ""),
    ("qwen2.5 qwen3 qwq-32b", "qwen3", "exact"),
    ("qwen2.5-max qwen3-max qwen3-coder-plus qwen3-coder-flash qwen3-vl-plus qwen3.", "qwen3", ""),
    ("deepseek", "deepseek_v3", ""),
    ("deepseek-v3 deepseek-r1 deepseek-v4 deepseek-chat deepseek-reasoner", "deepseek_v3", "exact"),
    ("deepseek-r1-distill-qwen deepseek-r1-0528-qwen3", "qwen3", ""),
    ("deepseek-r1-distill-llama", "llama3", ""),
    ("deepseek-r1:", "deepseek_v3", ""),  # most of what Ollama calls so is distilled
    ("mistral-nemo open-mistral-nemo ministral-8b-2410 pixtral-12b", "mistral_v3", "exact"),
    ("mistral ministral codestral devstral magistral pixtral voxtral", "mistral_v3", ""),
    ("glm", "glm4", ""),
    ("glm-4-9b glm-4-32b glm-4.5v glm-4.6v glm-z1", "glm4", "exact"),
    ("kimi", "kimi_k2", ""),
    ("kimi-k3", "kimi_k3", ""),
    ("minimax", "kimi_k2", ""),
)
_VOCABULARIES: dict[str, tuple[str, Claim]] = {
    prefix: (vocabulary_name, claim)
    for prefixes, vocabulary_name, claim in _ROWS
    for prefix in prefixes.split()
}
