"""`lamina.wrap`: a client of an official SDK whose every request is fitted. Start reading in `client`.

`sdk_calls` with `steps` makes each call: `refusals` mends a request that the API refused, and `shown_answers`
is what the caller sees of an answer. What is remembered between two calls is in `lamina.conversations`.
"""

from lamina.conversations.events import CutEvent, MissEvent, RepairEvent
from lamina.wrapped.client import conversation, fitted_of, last_fitted, wrap

__all__ = ["CutEvent", "MissEvent", "RepairEvent", "conversation", "fitted_of", "last_fitted", "wrap"]
