"""What requests cost, and what they would have cost without lamina: one table, and what is asked of it.

    the gateway's log ─┐
    records of a store ┼▶ uncut_requests ──▶ requests ──▶ table ──▶ report, savings, a file
    logs of clients ───┘

Read `requests.py` first: it has the row. `logs` reads what clients and applications logged.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.costs.logs import read_traces
    from lamina.costs.logs.logged_requests import price_file, price_trace
    from lamina.costs.logs.values import RecordedUsage, Trace, UnreadableLine
    from lamina.costs.report import cost_lines, costs_as_json
    from lamina.costs.requests import Request
    from lamina.costs.savings import compare_settings
    from lamina.costs.table import RequestTable

__all__ = [
    "RecordedUsage",
    "Request",
    "RequestTable",
    "Trace",
    "UnreadableLine",
    "compare_settings",
    "cost_lines",
    "costs_as_json",
    "price_file",
    "price_trace",
    "read_traces",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.costs.logs": "read_traces",
            "lamina.costs.logs.logged_requests": "price_file price_trace",
            "lamina.costs.logs.values": "RecordedUsage Trace UnreadableLine",
            "lamina.costs.report": "cost_lines costs_as_json",
            "lamina.costs.requests": "Request",
            "lamina.costs.savings": "compare_settings",
            "lamina.costs.table": "RequestTable",
        },
    )
