"""What a process keeps of the texts that it read, once nobody else keeps them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from lamina import fit_request
from lamina.core.text.known_words import KnownWords

LONGEST_KEPT = 1_100
"""Characters: a call with a thousand characters of arguments, and what it is about."""

CACHE = type(lru_cache(str))
HOLDERS = (CACHE, list, tuple, frozenset)


def _find_caches() -> list[Any]:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("lamina.core.")]
    values = [value for module in modules for value in vars(module).values()]
    return [value for value in values if isinstance(value, (CACHE, KnownWords))]


def _list_kept_texts() -> Iterator[str]:
    """The texts in the caches of functions of lamina's core, be they keys or values."""
    kept = _find_caches()
    while kept:
        value = kept.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            kept += [*value, *value.values()]  # the collector does not visit keys that are texts
        elif isinstance(value, HOLDERS):
            kept += gc.get_referents(value)


def test_no_cache_of_the_process_keeps_a_long_text() -> None:
    code = "qZ7-xK9_vW2/" * 4_000  # one token of 48,000 characters, as Base64 for URLs is one
    chinese = "绝不要修改配置文件也不要删除日志" * 400
    words = "The harbour was grey in the morning and always the boats lay still " * 4_000
    call = {"name": "read", "arguments": '{"path": "' + "a/b." * 2_000 + '"}'}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Always answer briefly. Read the files."}]
    for number, result in enumerate((code, chinese, words, "def " + code, "x = 1\n" * 900)):
        tool_call = {"id": f"call_{number}", "type": "function", "function": call}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [tool_call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
        ]
    messages += [
        {"role": "assistant", "content": "Read: " + code},
        {"role": "user", "content": words},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "What about the harbour and qZ7-xK9_vW2?"},
    ]
    for cache in _find_caches():
        if isinstance(cache, KnownWords):
            cache.clear()  # else it may be full soon, and forget these words as well
    kept_before = set(_list_kept_texts())  # of whatever this process has read before
    fit_request({"model": "unknown-model", "messages": messages}, budget=8_000)
    kept_texts = set(_list_kept_texts())
    assert "harbour" in kept_texts
    assert max(map(len, kept_texts - kept_before), default=0) <= LONGEST_KEPT


def test_long_words_are_read_and_not_remembered() -> None:
    words_read: list[str] = []

    def read(word: str) -> int:
        words_read.append(word)
        return len(word)

    known = KnownWords(read, longest=3)
    assert list(known.read_all(["a", "long", "abc", "a"])) == [1, 4, 3, 1]
    assert list(known.read_all(["a", "abc"])) == [1, 3]
    assert [known["long"], known["a"]] == [4, 1]
    assert words_read == ["a", "long", "abc", "long"]
