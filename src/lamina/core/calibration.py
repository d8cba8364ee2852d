"""Learning from what providers report: by how much a counter is off, in thousandths.

`tokens` applies what was learnt. A calibration holds for the counter that it was learnt with, and for no
other.
"""

from __future__ import annotations

import msgspec

from lamina.core.tokens import divide_up
from lamina.core.values import Calibration
from lamina.errors import BadInput

MILLIS_LEAST, MILLIS_MOST = 500, 4000
"""A report outside these bounds is believed only when the next one says the same: see `calibrate`."""

SAMPLES = 8
"""How many reports a calibration remembers: enough to smooth, few enough to follow a changed model."""


def calibrate(previous: Calibration | None, *, counted: int, reported: int, counter: str = "") -> Calibration:
    """Learn from one answer: `counted` is our total for it before calibration, `reported` the provider's.

    A running mean over the last samples, rounded up; the first sample counts alone. What was learnt with
    another counter is forgotten.

    A single report of less than half or more than four times our count says that something else was
    counted: it is noted as doubted, and changes nothing. If the next one is as far off to the same side,
    the counter is off, and the bound is learnt.
    """
    _check_positive("counted", counted)
    _check_positive("reported", reported)
    calibration = Calibration(counter=counter)
    if previous is not None and previous.counter == counter:
        calibration = previous
    ratio = divide_up(1000 * reported, counted)
    sample = min(max(ratio, MILLIS_LEAST), MILLIS_MOST)
    is_extreme = sample != ratio
    if is_extreme and sample != calibration.doubted:
        return msgspec.structs.replace(calibration, doubted=sample)
    weight = min(max(calibration.samples, 0), SAMPLES - 1)
    mean = divide_up(calibration.millis * weight + sample, weight + 1)
    doubted = sample if is_extreme else 0
    return Calibration(millis=mean, samples=weight + 1, counter=counter, doubted=doubted)


def _check_positive(name: str, value: int) -> None:
    """Raise BadInput for a count that nothing can be learnt from: an answer that reports no input."""
    if value <= 0:
        hint = "skip answers that report no input tokens"
        raise BadInput(f"{name} is {value!r}", place="calibrate", hint=hint)
