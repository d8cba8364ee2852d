"""What can go wrong with a call of a model, in one small tree, whichever SDK it was made with.

    CallFailed (RuntimeError)            `status` is the API's, None if there was no answer
    ├── RequestRefused (ValueError)      the request is at fault: too long, unknown model, a bad field
    ├── Denied (PermissionError)         the key is missing, wrong, or not allowed to do this
    ├── Busy                             too many requests, or an overloaded server: later it may work
    └── Unreachable (ConnectionError)    no answer, or one that broke off: nobody knows what was done

Errors are recognised by their shape, so no SDK is imported. Whether a request was too long is decided by the
caller, who can make it shorter: `status` and `said` are what the API answered.
"""

from __future__ import annotations

import re
from typing import Any

from lamina.errors import LaminaError

SDKS = frozenset(("openai", "anthropic", "google", "ollama", "httpx", "httpx2", "httpcore", "aiohttp"))
"""The packages whose errors are about a call. Errors from elsewhere are mistakes of a program."""

LONGEST = 2_000
"""How many characters of an API's message are kept: some quote the request in it."""


class CallFailed(LaminaError, RuntimeError):
    """A call of a model failed. Catch it for every provider; its subclasses say why.

    `said` is the API's message. `wait` is how many seconds it asks to wait, if it says so.
    """

    def __init__(self, message: str, *, status: int | None = None, wait: float | None = None) -> None:
        self.said = message[:LONGEST]
        self.status = status
        self.wait = wait
        super().__init__(self._summarise())

    def _summarise(self) -> str:
        if self.status:
            return f"the model's API answered {self.status}: {self.said[:300]}"
        return self.said[:300]


class RequestRefused(CallFailed, ValueError):
    """The request is at fault: sent again as it is, it fails again."""


class Denied(CallFailed, PermissionError):
    """The key is missing, wrong, or not allowed to do this."""


class Busy(CallFailed):
    """Too many requests, or an overloaded server: the same request may work later."""


class Unreachable(CallFailed, ConnectionError):
    """No answer came, or it broke off."""

    def _summarise(self) -> str:
        reason = self.said[:300].rstrip(".")
        return f"the model's API did not answer, or broke off: {reason}; check its address and the network"


_ERROR_OF_STATUS: dict[int, type[CallFailed]] = {
    401: Denied,
    403: Denied,
    408: Busy,
    409: Busy,
    425: Busy,
    429: Busy,
    503: Busy,
    529: Busy,
}
"""Every other status from 400 to 499 is the fault of the request."""

_UNREACHABLE_WORDS = re.compile("Connect|Timeout|Network|Protocol|Read")
"""Words in the name of an SDK's error if no server answered: "ConnectTimeout", "RemoteProtocolError"."""


def failure(status: int, message: str, *, wait: float | None = None) -> CallFailed:
    """The error for an API's status and message."""
    error_type = _ERROR_OF_STATUS.get(status, CallFailed)
    if error_type is CallFailed and 400 <= status < 500:
        error_type = RequestRefused
    return error_type(message, status=status, wait=wait)


def map_error(error: Exception) -> CallFailed | None:
    """The error of this tree for an SDK's error; None if the error is not about a call."""
    if isinstance(error, CallFailed):
        return error
    message = _read_message(error)
    if isinstance(error, TimeoutError | ConnectionError):
        return Unreachable(message)
    if type(error).__module__.partition(".")[0] not in SDKS:
        return None
    status = _read_status(error)
    if status is None:
        return _map_silence(error, message)
    return failure(status, message, wait=_read_wait(error))


def _map_silence(error: Exception, message: str) -> CallFailed:
    """The error for an SDK's error without a status: its name says whether the server was reached at all."""
    if _UNREACHABLE_WORDS.search(type(error).__name__):
        return Unreachable(message)
    if "api_key" in str(error):  # an SDK that was given no key raises before it sends anything
        return Denied(message)
    return CallFailed(message, wait=_read_wait(error))


def _read_message(error: Exception) -> str:
    """The message, followed by the code and the type that some SDKs have as attributes."""
    words = [str(error) or type(error).__name__]
    for name in ("code", "type"):
        value = getattr(error, name, None)
        if isinstance(value, str):
            words.append(value)
    return " ".join(words)


def _read_status(error: Exception) -> int | None:
    """The HTTP status. In some SDKs `code` is the status, in others a number of their own."""
    for name in ("status_code", "code"):
        status = getattr(error, name, None)
        if isinstance(status, int) and status >= 100:
            return status
    return None


def _read_wait(error: Exception) -> float | None:
    """How many seconds the API asks to wait."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    try:
        return max(float(headers.get("retry-after")), 0.0)
    except (AttributeError, TypeError, ValueError):  # no headers, no such header, or a date
        return None
