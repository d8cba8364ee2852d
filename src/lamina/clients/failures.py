"""What can go wrong with a call of a model, in one small tree, whichever SDK it was made with.

    CallFailed (RuntimeError)            `status` is the API's, None where there was no answer
    ├── Refused (ValueError)             the request is at fault: too long, unknown model, a bad field
    ├── Denied (PermissionError)         the key is missing, wrong, or not allowed to do this
    ├── Busy                             too many requests, or an overloaded server: later it may work
    └── Unreachable (ConnectionError)    no answer, or one that broke off: nobody knows what was done

Errors are told apart by their shape, so no SDK is imported. Whether a request was too long is for whoever can
make it shorter: `status` and `said` are what the API said.
"""

from __future__ import annotations

from typing import Any

from lamina.errors import LaminaError

SDKS = frozenset(("openai", "anthropic", "google", "ollama", "httpx", "httpx2", "httpcore", "aiohttp"))
"""Where errors come from that are about a call; others are mistakes of a program, and stay what they are."""

LONGEST = 2_000
"""Characters of an API's message that are kept: some quote the request in it."""


class CallFailed(LaminaError, RuntimeError):
    """A call of a model failed. `wait` is how many seconds the API asks to wait, where it says so."""

    def __init__(self, said: str, *, status: int | None = None, wait: float | None = None) -> None:
        self.said, self.status, self.wait = said[:LONGEST], status, wait
        super().__init__(f"the model's API answered {status}: {said[:300]}" if status else said[:300])


class RequestRefused(CallFailed, ValueError):
    """The request is at fault: sent again as it is, it fails again."""


class Denied(CallFailed, PermissionError):
    """The key is missing, wrong, or not allowed to do this."""


class Busy(CallFailed):
    """Too many requests, or a server without room: the same request may work later."""


class Unreachable(CallFailed, ConnectionError):
    """No answer came, or it broke off."""


def failure(status: int | None, said: str, *, wait: float | None = None) -> CallFailed:
    """The error for what an API said, by its status."""
    if status in (401, 403):
        return Denied(said, status=status)
    if status in (408, 409, 425, 429, 503, 529):
        return Busy(said, status=status, wait=wait)
    if status is not None and 400 <= status < 500:
        return RequestRefused(said, status=status)
    return CallFailed(said, status=status, wait=wait)


def mapped(error: Exception) -> CallFailed | None:
    """An SDK's error in this tree; None for one that is not about a call."""
    if isinstance(error, CallFailed):
        return error
    if isinstance(error, TimeoutError | ConnectionError):
        return Unreachable(_said(error))
    if type(error).__module__.partition(".")[0] not in SDKS:
        return None
    status = _status(error)
    if status is not None:
        return failure(status, _said(error), wait=_wait(error))
    if any(word in type(error).__name__ for word in ("Connect", "Timeout", "Network", "Protocol", "Read")):
        return Unreachable(_said(error))
    return Denied(_said(error)) if "api_key" in str(error) else CallFailed(_said(error))


def _said(error: Exception) -> str:
    """The message, with the code and type that some SDKs keep beside it."""
    beside = (getattr(error, name, None) for name in ("code", "type"))
    return " ".join([str(error) or type(error).__name__, *(word for word in beside if isinstance(word, str))])


def _status(error: Exception) -> int | None:
    found = (getattr(error, name, None) for name in ("status_code", "code"))
    return next((status for status in found if isinstance(status, int) and status >= 100), None)


def _wait(error: Exception) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    try:
        return max(float(headers.get("retry-after")), 0.0)
    except (AttributeError, TypeError, ValueError):  # no headers, no such header, or a date
        return None
