"""lamina without reminders, as a policy for `talks.py` and `policies.py`: `bench.no_reminders:POLICY`."""

from __future__ import annotations

import msgspec

from lamina.replay.policies.lamina_policies import LaminaRun
from lamina.replay.policies.port import PolicyRun, ReplayPolicy, Setting


def start(setting: Setting) -> PolicyRun:
    run = LaminaRun(setting)
    run.policy = msgspec.structs.replace(run.policy, remind="off")
    return run


POLICY = ReplayPolicy(name="no reminders", title="lamina without reminders", start=start)
