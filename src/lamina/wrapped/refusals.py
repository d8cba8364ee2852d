"""What to do about a request that an API refused: each function mends it, or says that it cannot.

Only for this package. `lamina.wrapped.sdk_calls` tries each of `MENDS` once.
"""

from __future__ import annotations

from collections.abc import Callable

from lamina.conversations.pending_call import PendingCall
from lamina.dialects.anthropic.server import refuses_binding_switch
from lamina.dialects.json_values import read_field
from lamina.dialects.overflow import read_overflow


def _shrink_after(pending: PendingCall, error: Exception) -> bool:
    """Make the request smaller if the error says that it was too long. Returns whether it is smaller now."""
    reported = read_overflow(*_read_error(error))
    if reported is None:
        return False
    return pending.shrink(reported)


def _forgo_switch_after(pending: PendingCall, error: Exception) -> bool:
    """Do without the switch for bound thinking if the error says that the API does not know it."""
    if not pending.headers or not refuses_binding_switch(*_read_error(error)):
        return False
    pending.forgo_switch()
    return True


def _read_error(error: Exception) -> tuple[int | None, str]:
    """The status and the text of an error. SDKs have the status under one of two names, boto3 inside."""
    code = getattr(error, "code", "")
    error_type = getattr(error, "type", "")
    metadata = read_field(getattr(error, "response", None), "ResponseMetadata")
    status = getattr(error, "status_code", None) or code or read_field(metadata, "HTTPStatusCode")
    if not isinstance(status, int):
        status = None
    return status, f"{error} {code} {error_type}"


Mend = Callable[[PendingCall, Exception], bool]
"""Mends the request of a call after an error. Returns whether the request is another one now."""

MENDS: tuple[Mend, ...] = (_shrink_after, _forgo_switch_after)
