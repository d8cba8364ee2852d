"""Suites for dialects and stores of your own, as lamina's own are tested: the extra `testing`.

lamina.testing.dialect(DIALECT)      the conformance suite for a wire format
lamina.testing.store(open_store)     the conformance suite for a store
lamina.testing.context               the conformance suite for whatever fits a conversation into a window
lamina.testing.strategies            Hypothesis strategies for hostile logs; needs hypothesis
lamina.testing.laws                  the laws over such logs, for any build; needs hypothesis
lamina.testing.model_server          a real llama.cpp server in this process; needs xllamacpp, gguf, numpy

The three suites need nothing besides lamina and any test runner.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "dialect":
        from lamina.testing.conformance import dialect  # noqa: PLC0415 - so that a store's tests load no dialect

        return dialect
    if name == "store":
        from lamina.testing.stores import store  # noqa: PLC0415 - as above

        return store
    raise AttributeError(name)
