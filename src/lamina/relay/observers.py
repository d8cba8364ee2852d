"""What counts and measures calls. The gateway does it for Prometheus, and a wrapped client does not."""

from __future__ import annotations

from typing import Protocol


class CallMetrics(Protocol):
    """Counts and measures by the names of `lamina.gateway.metrics`."""

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count."""

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Measure how long something took."""


class NoMetrics:
    """Counts nothing."""

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count nothing."""

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Measure nothing."""
