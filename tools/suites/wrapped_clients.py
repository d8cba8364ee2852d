"""A plugin for pytest in which every client that a test makes is wrapped by `lamina.wrap`.

    LAMINA_WRAPPED=openai:OpenAI,openai:AsyncOpenAI pytest -p wrapped_clients tests/

It changes `__new__`, so a test that calls the class gets the wrapped client, whoever calls it and under
whatever name. No request of a test reaches the budget, and lamina is told to place no cache markers. So the
SDK has to behave as if lamina were not there.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import lamina

POLICY = lamina.Policy(budget=lamina.Budget(window=100_000), breakpoints="keep")
COPIES = ("copy", "with_options")


def wrap_class(client_class: Any) -> None:
    client_class.__new__ = make_wrapped
    for name in COPIES:
        method = vars(client_class).get(name)
        if method is not None:
            setattr(client_class, name, unwrap_copy(method))


def make_wrapped(client_class: Any, *arguments: Any, **options: Any) -> Any:
    client = object.__new__(client_class)
    client_class.__init__(client, *arguments, **options)
    return lamina.wrap(client, policy=POLICY)


def unwrap_copy(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that returns the bare client, since a wrapped client wraps its copies itself."""

    @functools.wraps(method)
    def copy_client(*arguments: Any, **options: Any) -> Any:
        copied = method(*arguments, **options)
        return getattr(copied, "_inner", copied)

    return copy_client


for place in filter(None, os.environ.get("LAMINA_WRAPPED", "").split(",")):
    module, _, name = place.partition(":")
    wrap_class(getattr(importlib.import_module(module), name))
