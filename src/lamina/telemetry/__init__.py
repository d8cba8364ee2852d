"""What lamina does, as OpenTelemetry traces and metrics. Nothing is recorded unless you turn it on.

    from lamina import telemetry

    telemetry.turn_on()        # with the providers that your application has set up

Names are those of the GenAI conventions where those have one, and begin with `lamina.` elsewhere. Only ids,
counts, times and causes are recorded, never content. This module imports no other package: `otel.py`, which
needs the extra `otel`, is imported by `turn_on`.

    POST /v1/messages          the gateway only; continues the client's traceparent
    ├── lamina.fit             the build: tokens, outcome, and an event lamina.cut if there was a cut
    └── chat claude-opus-5     the call of the model: usage, what its cache gave, events lamina.recall
"""

from __future__ import annotations

from typing import Any

from lamina.telemetry.port import CallTrace, Telemetry

__all__ = ["CallTrace", "Telemetry", "active", "turn_off", "turn_on"]

_OFF = Telemetry()
_active = _OFF


def active() -> Telemetry:
    """What clients that are wrapped and sessions report to."""
    return _active


def turn_on(*, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Record what wrapped clients and sessions do, with these providers or those of the application."""
    global _active  # noqa: PLW0603 - one for the process, as OpenTelemetry has it
    from lamina.telemetry.otel import OtelTelemetry  # noqa: PLC0415 - an extra

    _active = OtelTelemetry(tracer_provider=tracer_provider, meter_provider=meter_provider)


def turn_off() -> None:
    """Record nothing from here on."""
    global _active  # noqa: PLW0603 - as above
    _active = _OFF
