"""What tests of lamina, and of what is built on it, are made with.

lamina.testing.dialect(DIALECT)      the conformance suite for a wire format
lamina.testing.store(open_store)     the conformance suite for a store
lamina.testing.injections            injected text in every place where it reaches a model
lamina.testing.clients               clients that edit, rewind and fork, and what must hold of what they get
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
    if name in ("injections", "clients"):
        return import_module(f"lamina.testing.{name}")
    raise AttributeError(name)
