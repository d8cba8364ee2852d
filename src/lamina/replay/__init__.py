"""Recorded sessions out of logs: read as traces, whatever shape they were kept in, and as rows of requests.

    for trace in read_traces(["logs/"]):
        ...
    table.add(price_file(path).requests)

Read `values.py` first. `lamina.costs` says what the rows cost.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.replay.generated_sessions import generate_session, split_calls
    from lamina.replay.logged_requests import price_file, price_trace
    from lamina.replay.traces import read_traces
    from lamina.replay.values import RecordedUsage, Trace, UnreadableLine

__all__ = [
    "RecordedUsage",
    "Trace",
    "UnreadableLine",
    "generate_session",
    "price_file",
    "price_trace",
    "read_traces",
    "split_calls",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.replay.generated_sessions": "generate_session split_calls",
            "lamina.replay.logged_requests": "price_file price_trace",
            "lamina.replay.traces": "read_traces",
            "lamina.replay.values": "RecordedUsage Trace UnreadableLine",
        },
    )
