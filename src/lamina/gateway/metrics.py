"""Counts and measures what the gateway does, for Prometheus. Labels are names of the settings, never content.

A scrape reaches one worker process, and has to get the numbers of all: the next one may reach another worker,
and Prometheus takes a smaller number for a restart. So the workers of one gateway keep theirs in files of one
folder (`METRICS_FOLDER_VARIABLE`), which is how prometheus_client shares them between processes.
"""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

METRICS_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder. prometheus_client reads it when it is imported, so a worker must be started with it."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""The buckets of times: fitting takes milliseconds, an answer may take minutes."""

# Without this there is a time of creation beside each counter, which nothing here asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Measure(NamedTuple):
    """One counter, gauge or histogram, with its help text and its labels."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


METRICS = {
    "lamina_requests_total": Measure(
        "counter",
        "Requests by upstream, dialect and outcome: unchanged, fitted, passed, refused.",
        ("upstream", "dialect", "outcome"),
    ),
    "lamina_answers_total": Measure(
        "counter", "Answers by upstream and class of status.", ("upstream", "status")
    ),
    "lamina_cuts_total": Measure("counter", "Cuts by upstream.", ("upstream",)),
    "lamina_recalls_total": Measure(
        "counter", "Answers that recalled something, and that the gateway answered itself.", ("upstream",)
    ),
    "lamina_retries_total": Measure(
        "counter",
        "Requests that the gateway sent once more, since the upstream was overloaded.",
        ("upstream",),
    ),
    "lamina_overflows_total": Measure(
        "counter", "Requests that the upstream refused as too long, and that were cut deeper.", ("upstream",)
    ),
    "lamina_tokens_total": Measure(
        "counter", "Tokens that upstreams reported, by kind: input, cached, written, output.", ("kind",)
    ),
    "lamina_misses_total": Measure("counter", "Cache misses by upstream and cause.", ("upstream", "cause")),
    "lamina_store_failures_total": Measure("counter", "Calls of the store that failed."),
    "lamina_failures_total": Measure(
        "counter", "Requests that could not be fitted and passed unchanged, by kind of error.", ("kind",)
    ),
    "lamina_requests_active": Measure("gauge", "Requests that are being answered."),
    "lamina_request_seconds": Measure(
        "histogram",
        "How long requests took, by part: fit, first_byte (until the upstream began to answer), whole.",
        ("part",),
    ),
}
"""Everything that is measured."""


class GatewayMetrics:
    """The measures of one process, or of all workers of one gateway."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._measures = {
            name: _make_measure(name, measure, self._registry) for name, measure in METRICS.items()
        }
        self._children: dict[tuple[str, ...], Any] = {}
        self._uncounted: dict[tuple[Any, ...], float] = {}
        """What was added since the last scrape, by name and labels, if no other worker is asked for it."""

        self._has_workers = METRICS_FOLDER_VARIABLE in os.environ

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count. prometheus_client takes five calls and a lock for each number, so it gets sums."""
        if self._has_workers:
            self._find(name, labels).inc(amount)
            return
        place = (name, *labels.items())
        self._uncounted[place] = self._uncounted.get(place, 0) + amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        self._find(name, labels).observe(seconds)

    def write(self) -> str:
        """Everything, as Prometheus reads it: of all workers, if there are several."""
        self._count()
        registry = self._registry
        if self._has_workers:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry).decode()

    def _count(self) -> None:
        """Give prometheus_client what was added."""
        for (name, *labels), amount in self._uncounted.items():
            self._find(name, dict(labels)).inc(amount)
        self._uncounted.clear()

    def _find(self, name: str, labels: dict[str, str]) -> Any:
        """The part of a measure with these labels. prometheus_client takes ten times as long to find it.

        Its classes are protocols, so to ask whether it is a counter takes as long as to count.
        """
        place = (name, *labels, *labels.values())
        child = self._children.get(place)
        if child is None:
            child = self._measures[name]
            if labels:
                child = child.labels(**labels)
            self._children[place] = child
        return child


def _make_measure(name: str, measure: Measure, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    match measure.kind:
        case "counter":
            return Counter(name, measure.text, measure.labels, registry=registry)
        case "gauge":
            return Gauge(name, measure.text, measure.labels, registry=registry, multiprocess_mode="livesum")
        case "histogram":
            return Histogram(name, measure.text, measure.labels, registry=registry, buckets=SECONDS)
