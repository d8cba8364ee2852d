"""What telemetry takes: the trace of one call, and what starts traces. Those here record nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lamina.core.values import Cut

RawHeaders = Sequence[tuple[bytes, bytes]]

_NOTHING_RECORDED = nullcontext()


class CallTrace:
    """The trace of one call of a model. This one records nothing; `otel.OtelCallTrace` does."""

    is_on = False

    def fitting(self) -> AbstractContextManager[None]:
        """The span of the build. An error in it is recorded."""
        return _NOTHING_RECORDED

    def describe(
        self, *, dialect: str = "", model: str = "", conversation: str = "", server: str = "", **more: Any
    ) -> None:
        """Whose call it is. What is "" is not known yet; `more` are attributes below `lamina.`.

        `server` is the address of the API.
        """

    def record_fit(self, *, tokens: int | None, outcome: str = "", cut: Cut | None = None) -> None:
        """What the build gave. `tokens` is None if the request was so small that nobody counted it."""

    def record_recalls(self, count: int) -> None:
        """So many recalls of the model were answered inside the call."""

    def start_sending(self) -> Mapping[str, str]:
        """Begin the span of the call. Returns the headers that continue the trace at the upstream."""
        return {}

    def record_usage(self, *, sent: int = 0, cached: int = 0, written: int = 0, output: int = 0) -> None:
        """What the provider reported, in tokens."""

    def record_answer(
        self, *, answer_id: str = "", model: str = "", finish_reasons: Sequence[str] = ()
    ) -> None:
        """What the answer says of itself."""

    def record_status(self, status: int) -> None:
        """The status of the HTTP answer."""

    def end_call(self, error: str = "") -> None:
        """End the span of a call. Another call may follow, after a recall of the model."""

    def end(self, error: str = "") -> None:
        """End all spans that were begun. A second end does nothing."""


class Telemetry:
    """Starts traces. This one starts none; `otel.OtelTelemetry` does."""

    is_on = False

    def start_request(self, method: str, path: str, headers: RawHeaders) -> CallTrace:
        """The trace of a request that came over HTTP, which continues the client's if it has one."""
        del method, path, headers
        return _NO_TRACE

    def start_call(self, dialect: str, model: str) -> CallTrace:
        """The trace of a call that this process makes itself."""
        del dialect, model
        return _NO_TRACE

    def start_build(self, model: str) -> CallTrace:
        """The trace of a build in a session. The call of the model is the application's."""
        del model
        return _NO_TRACE

    def count_recalls(self, count: int) -> None:
        """So many recalls were answered outside of a call."""

    def count_usage(self, dialect: str, model: str, *, sent: int, cached: int, output: int) -> None:
        """What the provider reported of a call that the application made itself, in tokens."""

    def count_miss(self, dialect: str, model: str, *, cause: str, by: str, lost: int) -> None:
        """A request lost its cache: why, by whose doing, and how many tokens were paid again."""

    def close(self) -> None:
        """Send what has not been sent yet."""


_NO_TRACE = CallTrace()
