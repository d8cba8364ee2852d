"""What requests cost, and what they would have cost without lamina: one table, and what is asked of it.

    the gateway's log ─┐
    records of a store ┼▶ uncut_requests ──▶ requests ──▶ table ──▶ report, savings, a file
    logs of clients ───┘

Read `requests.py` first: it has the row.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.costs.report import cost_lines, costs_as_json
    from lamina.costs.requests import Request
    from lamina.costs.savings import compare_settings
    from lamina.costs.table import RequestTable

__all__ = ["Request", "RequestTable", "compare_settings", "cost_lines", "costs_as_json"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.costs.report": "cost_lines costs_as_json",
            "lamina.costs.requests": "Request",
            "lamina.costs.savings": "compare_settings",
            "lamina.costs.table": "RequestTable",
        },
    )
