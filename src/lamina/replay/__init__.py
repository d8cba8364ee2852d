"""Recorded sessions, sent again under each policy and each provider's cache rules, and what that costs.

    account = replay(read_traces(["logs/"]), policies=["sliding", "lamina"], windows=[64_000])

Read `values.py` first, then `runs.py`: a trace becomes a conversation of model calls (`model_calls`), a
policy sends each of them (`walk`), a simulated cache prices them (`outcomes`).
"""
