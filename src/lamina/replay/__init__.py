"""The lab: recorded sessions, sent again under each policy and each provider's rules, and what that costs.

    account = replay(read(["logs/"]), policies=["sliding", "lamina"], windows=[64_000])

Read `values.py` first, then `replay.py`: a trace becomes a conversation of model calls (`asked`), a policy
sends each of them (`walk`), a simulated cache prices them (`outcome`).
"""
