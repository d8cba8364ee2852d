"""One request on its way to the API, with the conversation that it belongs to.

The sender makes a `PendingCall` of a request, sends `call.request`, and reports the outcome: `finish` when it
was answered, `shrink` when it was refused as too long, which makes a smaller request to send instead. A call
that failed in another way leaves no trace. Nothing is sent here. Safe to use from several threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from lamina.core.values import Budget
from lamina.dialects.overflow import Overflow
from lamina.dialects.port import Dialect
from lamina.dialects.usage import Usage
from lamina.errors import BudgetExceeded
from lamina.fitting.conversations import Conversations
from lamina.fitting.request import Fitted, fit_request
from lamina.models.facts import model

RETRY_SHARE = 0.75
"""If the API refused a request without naming its limit, the next one may have this share of its tokens."""


class PendingCall:
    """One request: as it is sent first, and as it is sent again after an overflow."""

    def __init__(self, conversations: Conversations, dialect: Dialect, request: Mapping[str, Any]) -> None:
        self._conversations = conversations
        self._dialect = dialect
        self._original = _read_iterators(request)
        self._model = str(request.get("model", ""))
        with conversations.lock:
            self._key, self._conversation = conversations.find(self._original, dialect)
            self._conversation_before = conversations.by_key.get(self._key)
            self._windows = self._conversation.windows
            self._fitted = self._fit(self._current_budget())

    @property
    def request(self) -> dict[str, Any]:
        """What to send."""
        return self._fitted.request

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that must be sent with the request."""
        return self._fitted.headers

    @property
    def fitted(self) -> Fitted:
        """The request as it is sent, with its ledger, its account and what was lowered."""
        return self._fitted

    def shrink(self, overflow: Overflow) -> bool:
        """Make the request smaller: as small as the API asked for, or else as small as it can be.

        Returns False if the request cannot be made smaller at all.
        """
        counted = self._fitted.envelope.tokens
        window = overflow.window(counted, otherwise=RETRY_SHARE)
        with self._conversations.lock:
            try:
                self._windows = {**self._conversation.windows, self._model: window}
                self._fitted = self._fit(self._current_budget())
            except BudgetExceeded as error:
                if error.floor >= counted:
                    return False
                # No later request would fit this window either, so it is not remembered.
                self._windows = self._conversation.windows
                smallest = limit_budget(self._current_budget(), error.floor, reserve=0)
                self._fitted = self._fit(smallest)
        return True

    def finish(self, *, usage: Usage | int = 0) -> None:
        """Remember the call in its conversation: it was answered. `usage` is what the API counted."""
        conversation = msgspec.structs.replace(
            self._conversation,
            ledger=self._fitted.ledger,
            fitted=self._fitted,
            windows=self._windows,
            usage=self._complete_usage(usage),
        )
        with self._conversations.lock:
            self._key = self._conversations.remember(
                self._key, conversation, before=self._conversation_before
            )

    def record_usage(self, usage: Usage | int) -> None:
        """Record what the API counted, if it reported that only at the end of a stream.

        If a later call has continued the conversation meanwhile, its usage is the one that counts.
        """
        with self._conversations.lock:
            conversation = self._conversations.by_key.get(self._key)
            if conversation is None or conversation.fitted is not self._fitted:
                return
            updated = msgspec.structs.replace(conversation, usage=self._complete_usage(usage))
            self._conversations.by_key[self._key] = updated

    def remember_answer(self, answer: Any) -> Any:
        """Remember that this answer belongs to this call, and return the answer."""
        self._conversations.answers.remember(answer, self)
        return answer

    def _complete_usage(self, usage: Usage | int) -> Usage | int:
        """Return the usage. If the answer reported none, what the server cleared last still holds."""
        last_usage = self._conversation.usage
        if usage in (0, Usage()) and isinstance(last_usage, Usage):
            return Usage(cleared=last_usage.cleared)
        return usage

    def _fit(self, budget: Budget) -> Fitted:
        return fit_request(
            self._original,
            dialect=self._dialect,
            budget=budget,
            ledger=self._conversation.ledger,
            usage=self._conversation.usage,
            counter=self._conversations.counter,
            memo=self._conversation.memo,
            breakpoints=self._conversations.breakpoints,
            server=self._conversations.server,
        )

    def _current_budget(self) -> Budget:
        """Return the budget, with the window that the API reported if that is smaller."""
        budget = self._conversations.budget or model(self._model).budget
        reported_window = self._windows.get(self._model, budget.window)
        if reported_window >= budget.window:
            return budget
        return limit_budget(budget, reported_window)


def _read_iterators(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with its iterators as lists: it is read more than once."""
    arguments: dict[str, Any] = {}
    for name, value in request.items():
        if isinstance(value, Iterator):
            arguments[name] = list(value)
        else:
            arguments[name] = value
    return arguments


def limit_budget(budget: Budget, window: int, *, reserve: int | None = None) -> Budget:
    """Return the budget with a smaller window. The answer's reserve takes at most half of it."""
    if reserve is None and budget.reserve is not None:
        reserve = min(budget.reserve, window // 2)
    return msgspec.structs.replace(budget, window=max(window, 1), reserve=reserve)
