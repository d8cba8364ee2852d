"""What a session would have cost with each working window of `lamina run` ("what if").

The rows are those that `lamina cost` prints for many sessions: everything sent first, and then what `run`
would use. Only sizes and times are simulated, so they are there at once.
"""

from __future__ import annotations

import msgspec

from lamina.costs.savings import compare_settings
from lamina.inspector.recorded_sessions import read_known
from lamina.inspector.views import Inspector, Json


def show_alternatives(inspector: Inspector, session_id: str) -> Json:
    """The rows, None if the price of the session is not known; and what was paid under lamina."""
    opened = inspector.open(session_id)
    table = opened.sent.table
    paid = None
    if not opened.sent.is_log:
        cost = table.sum_money()
        paid = {
            "dollars": read_known(cost),
            "is_at_least": bool(cost.reason),
            "cuts": opened.session.summary.cuts,
        }
    return {"saving": msgspec.to_builtins(compare_settings(table)), "paid": paid}
