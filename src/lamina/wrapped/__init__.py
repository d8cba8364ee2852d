"""`lamina.wrap`: a client of an official SDK whose every request is fitted. Start reading in `client`.

`sdk_calls` with `steps` makes each call. What is remembered between two calls is in `lamina.conversations`.

`transport` does the same for whatever sends over httpx: its calls go through a relay `in_process`.
"""

from lamina.conversations.events import CutEvent, MissEvent, RepairEvent
from lamina.wrapped.client import conversation, fitted_of, last_fitted, wrap

__all__ = ["CutEvent", "MissEvent", "RepairEvent", "conversation", "fitted_of", "last_fitted", "wrap"]
