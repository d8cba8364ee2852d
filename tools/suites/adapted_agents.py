"""A plugin for pytest in which every agent that a test makes has lamina's adapter of its framework.

    LAMINA_ADAPTED=langchain pytest -p adapted_agents tests/

No request of a test reaches the budget, and the adapter adds no tool. So the framework has to behave as if
lamina were not there.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import msgspec

import lamina

POLICY = lamina.Policy(budget=lamina.Budget(window=100_000), recall="off")


def adapt_langchain() -> None:
    """Put the middleware next to the model, behind those of the test."""
    adapter = importlib.import_module("lamina.adapters.langchain")
    factory: Any = importlib.import_module("langchain.agents.factory")
    package: Any = importlib.import_module("langchain.agents")
    make_bare = factory.create_agent

    @functools.wraps(make_bare)
    def create_agent(*arguments: Any, middleware: Any = (), **options: Any) -> Any:
        adapted = [*middleware, adapter.LaminaMiddleware(policy=POLICY)]
        return make_bare(*arguments, middleware=adapted, **options)

    factory.create_agent = create_agent
    package.create_agent = create_agent


def adapt_openai_agents() -> None:
    """Make both sessions that the tests use lamina's, with its filter in every run."""
    session_class = importlib.import_module("lamina.adapters.openai_agents").LaminaSession
    file_session = make_file_session(session_class)
    for name in ("agents", "agents.memory", "agents.memory.sqlite_session"):
        vars(importlib.import_module(name))["SQLiteSession"] = file_session
    tests_own: Any = importlib.import_module("tests.utils.simple_session")
    tests_own.SimpleListSession = make_list_session(session_class)
    runner_class = importlib.import_module("agents.run").AgentRunner
    for name in ("run", "run_streamed"):
        setattr(runner_class, name, run_with_filter(getattr(runner_class, name), session_class))


def make_file_session(session_class: Any) -> Any:
    """A session that takes the arguments of the SDK's SQLiteSession."""
    settings = importlib.import_module("agents.memory.session_settings")

    class FileSession(session_class):  # type: ignore[misc]
        def __init__(self, session_id: str, db_path: Any = ":memory:", **options: Any) -> None:
            address = str(db_path)
            if address == ":memory:":
                address = "memory:"
            super().__init__(session_id, address, policy=POLICY)
            self.session_settings = settings.coerce_session_settings(options.get("session_settings") or {})

        def close(self) -> None:
            self.store.close()

    return FileSession


def make_list_session(session_class: Any) -> Any:
    """A session that takes the arguments of the one in the tests, and shows its items as that one does."""

    class ListSession(session_class):  # type: ignore[misc]
        def __init__(self, session_id: str = "test", history: Any = None) -> None:
            super().__init__(session_id, "memory:", policy=POLICY)
            self._ignore_ids_for_matching = False
            self.store.run(self._append, [msgspec.json.encode(item) for item in history or ()], None)

        @property
        def saved_items(self) -> Any:
            return self.store.run(self._load_items)

        _items = saved_items

    return ListSession


def run_with_filter(run_bare: Callable[..., Any], session_class: Any) -> Callable[..., Any]:
    @functools.wraps(run_bare)
    def run(*arguments: Any, **options: Any) -> Any:
        session = options.get("session")
        if isinstance(session, session_class):
            options["run_config"] = session.run_config(options.get("run_config"))
        return run_bare(*arguments, **options)

    return run


def adapt_pydantic_ai() -> None:
    """Give every agent the capability, behind those of the test.

    It writes no ledger into the responses: nothing is lowered here, and the tests compare whole responses.
    """
    capability_class = importlib.import_module("lamina.adapters.pydantic_ai").LaminaCapability
    del capability_class.after_model_request
    agent_class = importlib.import_module("pydantic_ai").Agent
    make_bare = agent_class.__init__

    @functools.wraps(make_bare)
    def make_agent(*arguments: Any, capabilities: Any = None, **options: Any) -> None:
        adapted = [*(capabilities or ()), capability_class(policy=POLICY)]
        make_bare(*arguments, capabilities=adapted, **options)

    agent_class.__init__ = make_agent


ADAPTED = {
    "langchain": adapt_langchain,
    "openai-agents": adapt_openai_agents,
    "pydantic-ai": adapt_pydantic_ai,
}

adapted = os.environ.get("LAMINA_ADAPTED")
if adapted:
    ADAPTED[adapted]()
