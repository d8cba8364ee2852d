"""Which vocabulary a model has that is not OpenAI's or Anthropic's, and what may be claimed for it.

`exact` means that the reference of that very model agreed with the vocabulary on the corpus of
bench/counting.py, text for text; `measured` that the counts fit usage that the provider reported. A model
with neither has the vocabulary that comes nearest. notes/counting.md has the evidence.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from lamina.core.tokens import Counter
from lamina.errors import BadInput
from lamina.models.counters.vocabularies import vocabulary
from lamina.models.framing import longest_prefix
from lamina.models.names import own_name

Claim = Literal["exact", "measured", ""]


def for_model(model: str) -> Counter:
    """The counter of a model by its name. It claims no more than what the table says."""
    name = own_name(model)
    prefix = longest_prefix(name, _VOCABULARIES)
    if prefix is None:
        raise BadInput(
            f"no vocabulary is known for model {model!r}",
            place="for_model",
            hint="use from_file(path) with its tokenizer.json, or counter_for(model) for an estimate",
        )
    vocabulary_name, claim = _VOCABULARIES[prefix]
    if _WORD_GOES_ON.match(name, len(prefix)):
        claim = ""
    counter = vocabulary(vocabulary_name)
    return msgspec.structs.replace(counter, exact=claim == "exact", measured=claim == "measured")


_WORD_GOES_ON = re.compile(r"[a-z0-9]")  # `qwen3x` is another model than `qwen3`

_ROWS: tuple[tuple[str, str, Claim], ...] = (
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
    ("qwen2.5-max qwen3-max qwen3-coder-plus qwen3-coder-flash qwen3.", "qwen3", ""),
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
