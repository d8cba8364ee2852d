"""Says what providers add around the text of a request, per family of models: dated data and one lookup.

Source of `request`, `message`, `tools` and `tool`: npm ai-tokenizer 1.0.6 (MIT), constants measured
against the providers' APIs, read 2026-11-15. If models of a family differ, the largest constant is taken, and
negative ones are 0: too many tokens cut a little early, too few break a request. Its constants per
property of a schema are left out, because lamina counts the whole schema as text.
Source of `result`: tokens that one tool result added to recorded requests beyond its text (11 with GPT-5.4
and 5.5, 12 with Claude Opus 4.7, 1 with Gemini 3 Pro), less `message`. `call`, and `result` of the other
families, were not measured: they have the generic 8.
Source of `document`, which is a page: 2,324 to 2,481 tokens with Claude 5.5 and 560 with Gemini 3, as
huggingface.co/datasets/JOHNISKING/pdf-token-cost measured (2026-10-18). Pages can be denser than those.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamina.core.tokens import Framing
from lamina.models.names import own_name

GENERIC = Framing(name="generic", request=7, message=4, call=8, result=8, tools=240, tool=55)
"""For models that were not measured: about three in four of the measured ones cost no more."""


def framing_for(model: str) -> Framing:
    """The framing of a model, by the longest name in the table that its own name begins with."""
    return _BY_PREFIX.get(longest_prefix(own_name(model), _BY_PREFIX), GENERIC)


def longest_prefix(name: str, table: Mapping[str, object]) -> str:
    """The longest key of a table that a name begins with; "" without one."""
    prefixes = [prefix for prefix in table if name.startswith(prefix)]
    return max(prefixes, key=len, default="")


def _framing(
    name: str, request: int, message: int, tools: int, tool: int, *, result: int = 8, document: int = 3000
) -> Framing:
    return Framing(
        name=name,
        request=request,
        message=message,
        call=8,
        result=result,
        document=document,
        tools=tools,
        tool=tool,
    )


_BY_PREFIX: Mapping[str, Framing] = MappingProxyType(
    {
        prefix: framing
        for prefixes, framing in (
            ("gpt-3.5 gpt-35 gpt-4 chatgpt-4o gpt-5-chat", _framing("gpt-4", 6, 3, 16, 6)),
            ("gpt-5 gpt-6", _framing("gpt-5", 6, 4, 103, 6, result=7)),
            ("o1 o3 o4", _framing("o-series", 5, 4, 19, 6)),
            ("gpt-oss", _framing("gpt-oss", 70, 4, 42, 15)),
            ("claude-3-opus", _framing("claude-3-opus", 6, 2, 586, 53, result=10)),
            ("claude-3 claude-opus-4-0 claude-opus-4-1", _framing("claude-3", 6, 2, 366, 53, result=10)),
            ("claude-opus-4.1 claude-opus-4-2025", _framing("claude-3", 6, 2, 366, 53, result=10)),
            ("claude-sonnet-4-0 claude-sonnet-4-2025", _framing("claude-3", 6, 2, 366, 53, result=10)),
            ("claude", _framing("claude", 6, 2, 549, 53, result=10)),
            ("gemini gemma", _framing("gemini", 0, 0, 18, 18, result=1, document=700)),
            (
                "mistral mixtral ministral codestral devstral magistral pixtral",
                _framing("mistral", 2, 1, 63, 60),
            ),
            ("deepseek", _framing("deepseek", 7, 3, 149, 71)),
            ("qwen qwq", _framing("qwen", 9, 4, 260, 60)),
            ("grok-2 grok-3", _framing("grok-3", 6, 3, 262, 35)),
            ("grok", _framing("grok", 683, 3, 187, 32)),
            ("grok-4-fast grok-4.1-fast", _framing("grok-fast", 167, 3, 186, 32)),
            ("grok-code", _framing("grok-code", 203, 61, 167, 37)),
            ("llama meta-llama", _framing("llama", 34, 4, 532, 47)),
            ("kimi", _framing("kimi", 24, 4, 67, 54)),
            ("glm", _framing("glm", 9, 3, 133, 33)),
            ("minimax", _framing("minimax", 40, 4, 147, 51)),
            ("nova", _framing("nova", 0, 2, 394, 41)),
        )
        for prefix in prefixes.split()
    }
)
