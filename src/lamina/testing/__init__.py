"""What tests of lamina, and of what is built on it, are made with.

lamina.testing.dialect(DIALECT)      the conformance suite for a wire format
lamina.testing.store(open_store)     the conformance suite for a store
lamina.testing.injections            injected text in every place where it reaches a model
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "dialect":
        from lamina.testing.conformance import dialect  # noqa: PLC0415 - who needs one session does not pay

        return dialect
    if name == "store":
        from lamina.testing.stores import store  # noqa: PLC0415 - as above

        return store
    if name == "injections":
        return import_module("lamina.testing.injections")
    raise AttributeError(name)
