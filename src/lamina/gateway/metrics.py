"""Counters in Prometheus's text format. Labels are names of the settings, never content or ids."""

from __future__ import annotations

from collections import defaultdict

METRICS = {
    "lamina_requests_total": "Requests by upstream, dialect and outcome: unchanged, fitted, passed, refused.",
    "lamina_answers_total": "Answers by upstream and class of status.",
    "lamina_cuts_total": "Cuts by upstream.",
    "lamina_recalls_total": "Answers that recalled something, and that the gateway answered itself.",
    "lamina_overflows_total": "Requests that the upstream refused as too long, and that were cut deeper.",
    "lamina_tokens_total": "Tokens that upstreams reported, by kind: input, cached, written, output.",
    "lamina_misses_total": "Cache misses by upstream and cause.",
    "lamina_store_failures_total": "Calls of the store that failed.",
    "lamina_failures_total": "Requests that could not be fitted and passed unchanged, by kind of error.",
    "lamina_requests_active": "Requests that are being answered.",
    "lamina_seconds_total": "Seconds that requests took, by part: fit, whole.",
}
"""What each counter says."""


class GatewayMetrics:
    """All counters of one process."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter. All callers of one counter give its labels in the same order."""
        self._values[(name, tuple(labels.items()))] += amount

    def value(self, name: str, **labels: str) -> float:
        """A counter with these labels, in any order."""
        sorted_labels = sorted(labels.items())
        values = self._values.items()
        return sum(value for (key, own), value in values if key == name and sorted(own) == sorted_labels)

    def write(self) -> str:
        """Everything, as Prometheus reads it."""
        lines: list[str] = []
        last_name = ""
        for (name, labels), value in sorted(
            ((name, tuple(sorted(labels))), value) for (name, labels), value in self._values.items()
        ):
            if name != last_name:
                kind = "counter"
                if name.endswith("_active"):
                    kind = "gauge"
                lines += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} {kind}"]
                last_name = name
            words = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
            place = name
            if words:
                place = f"{name}{{{words}}}"
            lines.append(f"{place} {value:g}")
        return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
