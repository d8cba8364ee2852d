"""Hypothesis profiles, for every test. No fixtures live here: a test says what it needs.

`ci` tries the same examples each time, so that `make test` passes or fails for the same code; the others
try other examples each time. `make seeds` runs every property with ten seeds.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Shared machines are slow at random, and no test here asserts a wall time.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
_BY_DEFAULT = "ci" if os.environ.get("CI") == "true" else "dev"

settings.register_profile("dev", parent=_PATIENT, max_examples=50)
settings.register_profile("ci", parent=_PATIENT, max_examples=35, derandomize=True, database=None)
settings.register_profile("seeds", parent=_PATIENT, max_examples=40)
settings.register_profile("long", parent=_PATIENT, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _BY_DEFAULT))
