"""Recorded sessions, sent again under each policy and each provider's cache rules, and what that costs.

    account = replay(read_traces(["logs/"]), policies=["sliding", "lamina"], windows=[64_000])

Read `values.py` first, then `runs.py`: a trace becomes a conversation of model calls (`model_calls`), a
policy sends each of them (`walk`), a simulated cache prices them (`outcomes`).
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.replay.generated_sessions import generate_session, split_calls
    from lamina.replay.logged_requests import price_file
    from lamina.replay.policies.port import PolicyRequest, ReplayPolicy, Setting
    from lamina.replay.recorded_usage import sum_recorded_usage
    from lamina.replay.runs import ReplayOptions, replay
    from lamina.replay.traces import read_traces
    from lamina.replay.values import RecordedUsage, ReplayAccount, ReplayOutcome, Trace, UnreadableLine

__all__ = [
    "PolicyRequest",
    "RecordedUsage",
    "ReplayAccount",
    "ReplayOptions",
    "ReplayOutcome",
    "ReplayPolicy",
    "Setting",
    "Trace",
    "UnreadableLine",
    "generate_session",
    "price_file",
    "read_traces",
    "replay",
    "split_calls",
    "sum_recorded_usage",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.replay.generated_sessions": "generate_session split_calls",
            "lamina.replay.logged_requests": "price_file",
            "lamina.replay.policies.port": "PolicyRequest ReplayPolicy Setting",
            "lamina.replay.recorded_usage": "sum_recorded_usage",
            "lamina.replay.runs": "ReplayOptions replay",
            "lamina.replay.traces": "read_traces",
            "lamina.replay.values": "RecordedUsage ReplayAccount ReplayOutcome Trace UnreadableLine",
        },
    )
