"""Suites for dialects and stores of your own, and a client that answers from a script.

lamina.testing.dialect(DIALECT)      the conformance suite for a wire format
lamina.testing.store(open_store)     the conformance suite for a store
lamina.testing.ScriptedClient(script)  a client without a model, for your own tests and examples
lamina.testing.generate_session(seed)  a made-up session of a coding agent, as a log
lamina.testing.context               the conformance suite for whatever fits a conversation into a window
lamina.testing.strategies            Hypothesis strategies for hostile logs; needs hypothesis
lamina.testing.laws                  the laws over such logs, for any build; needs hypothesis
lamina.testing.model_server          a real llama.cpp server in this process; needs xllamacpp, gguf, numpy

The three suites and the client need nothing besides lamina and any test runner. The rest is the extra
`testing`.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.testing._generated_sessions import generate_session, split_calls
    from lamina.testing._scripted import ScriptedAnswer, ScriptedClient
    from lamina.testing.cases import Conformance
    from lamina.testing.conformance import dialect
    from lamina.testing.stores import store

__all__ = [
    "Conformance",
    "ScriptedAnswer",
    "ScriptedClient",
    "dialect",
    "generate_session",
    "split_calls",
    "store",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.testing.cases": "Conformance",
            "lamina.testing.conformance": "dialect",
            "lamina.testing._generated_sessions": "generate_session split_calls",
            "lamina.testing._scripted": "ScriptedAnswer ScriptedClient",
            "lamina.testing.stores": "store",
        },
    )
