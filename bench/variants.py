"""lamina with one thing changed, as policies for the lab and for `talks.py` and `policies.py`.

`bench/policies.py PATH... --policies lamina,bench.variants:no_reminders` compares one with lamina as it is by
default. `no_reminders` brings nothing back by itself.
"""

from __future__ import annotations

import msgspec

from bench.lab.lamina_policies import LaminaRun
from bench.lab.port import PolicyRun, ReplayPolicy, Setting


def _start_without_reminders(setting: Setting) -> PolicyRun:
    run = LaminaRun(setting)
    run.policy = msgspec.structs.replace(run.policy, remind="off")
    return run


no_reminders = ReplayPolicy(
    name="no reminders", title="lamina without reminders", start=_start_without_reminders
)
