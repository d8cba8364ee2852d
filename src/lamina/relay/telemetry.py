"""The gateway's traces and metrics over OTLP, if its settings say `telemetry = "otlp"`.

Where to send them, and how, is said by OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and others.
"""

from __future__ import annotations

from lamina.errors import BadInput
from lamina.relay.config import GatewaySettings
from lamina.telemetry import Telemetry


def open_telemetry(settings: GatewaySettings) -> Telemetry:
    """The telemetry of the settings. Without it nothing is imported."""
    if settings.telemetry == "off":
        return Telemetry()
    from lamina.telemetry.otel import open_otlp  # noqa: PLC0415 - an extra

    try:
        return open_otlp()
    except ImportError as error:
        raise BadInput(str(error), place="telemetry", hint="pip install 'lamina-context[otel]'") from None
