"""Sends requests through one dialect for tests: they are read, built and written, without a policy."""

from __future__ import annotations

import json
from typing import Any

from lamina import Budget, Envelope, Ledger, build
from lamina.core import Layout
from lamina.dialects import DIALECTS
from lamina.dialects.translate import choose_options

Json = dict[str, Any]

LOGGED = Layout(context="logged")


def fit(
    name: str, request: Json, *, window: int | None = None, ledger: Ledger | None = None, **dials: Any
) -> Envelope:
    """The envelope of a request, cut if it has a window that is too small. `dials` are of the budget."""
    dialect = DIALECTS[name]
    parsed = dialect.wire.parse(request)
    budget = Budget(window=window, reserve=0, **dials) if window else None
    options = choose_options(dialect, parsed.head, layout=LOGGED)
    return build(parsed.log, head=parsed.head, budget=budget, ledger=ledger, options=options)


def send(name: str, request: Json, **dials: Any) -> Json:
    """The request that is sent. It is valid, and reads back."""
    wire = DIALECTS[name].wire
    rendered_request = wire.render(fit(name, request, **dials))
    assert wire.check(rendered_request) == []
    wire.parse(json.loads(json.dumps(rendered_request)))
    return rendered_request
