"""`lamina.wrap` and `lamina.transport`: clients whose every request is fitted. Start reading in `client`.

A relay `in_process` makes each call. `transport` gives it what an HTTP client sends. `sdk_transports` puts it
in front of the transports that an SDK has, for the `sdk_calls` of wrapped clients; `boto` does the same for
AWS's client.
"""

from lamina.conversations.events import CutEvent, MissEvent, RepairEvent
from lamina.wrapped.client import conversation, fitted_of, last_fitted, wrap

__all__ = ["CutEvent", "MissEvent", "RepairEvent", "conversation", "fitted_of", "last_fitted", "wrap"]
