"""Writes the gateway's own errors in the shape of the API that the client speaks.

An SDK reads the error of its own provider. So a refusal has the provider's shape, and `lamina` as its source.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.core.cut import OPEN_LOOP
from lamina.errors import BudgetExceeded, InvalidRequest

_TYPES = {
    400: ("invalid_request_error", "INVALID_ARGUMENT"),
    401: ("authentication_error", "UNAUTHENTICATED"),
    403: ("permission_error", "PERMISSION_DENIED"),
    404: ("not_found_error", "NOT_FOUND"),
    408: ("timeout_error", "DEADLINE_EXCEEDED"),
    413: ("request_too_large", "INVALID_ARGUMENT"),
    415: ("invalid_request_error", "INVALID_ARGUMENT"),
    421: ("invalid_request_error", "INVALID_ARGUMENT"),
    426: ("invalid_request_error", "INVALID_ARGUMENT"),
    429: ("rate_limit_error", "RESOURCE_EXHAUSTED"),
    502: ("api_error", "UNAVAILABLE"),
    503: ("overloaded_error", "UNAVAILABLE"),
    504: ("timeout_error", "DEADLINE_EXCEEDED"),
}
"""The name of each status: first that of Anthropic and OpenAI, then Google's."""

_EXCEPTIONS = {
    400: "ValidationException",
    401: "AccessDeniedException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    413: "ValidationException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
}
"""The names of errors in the APIs of AWS."""


_UNREAD = frozenset((401, 403, 408, 413, 421, 429))
"""Statuses of refusals that come before the body was read. They end the connection."""


class Refusal(Exception):
    """A request that the gateway answers itself, with an error. `message` holds nothing of the content.

    `error` is what a caller in this process is told instead.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after: int = 0,
        code: str = "",
        error: Exception | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.code = code
        self.error = error
        super().__init__(message)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", b"application/json"), (b"x-lamina-refused", b"1")]
        if self.status in _UNREAD:
            headers.append((b"connection", b"close"))
        if self.retry_after:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.status == 426:
            headers.append((b"upgrade", b"HTTP/1.1"))
        return headers

    def body(self, dialect: str) -> bytes:
        """The error as the client's API writes it."""
        return msgspec.json.encode(describe_error(dialect, self.status, f"lamina: {self.message}", self.code))

    def event(self, dialect: str, number: int) -> bytes:
        """The error as an event of a stream that has begun already.

        `number` is the next one of the stream, for an API that numbers its events.
        """
        error = self.body(dialect)
        if dialect == "anthropic":
            return b"event: error\ndata: " + error + b"\n\n"
        if dialect == "openai_responses":
            return b"event: error\ndata: " + msgspec.json.encode(self._describe_event(number)) + b"\n\n"
        if dialect == "ollama":
            return error + b"\n"
        return b"data: " + error + b"\n\n"

    def _describe_event(self, number: int) -> dict[str, Any]:
        """The last event of a stream of the Responses API.

        Open Responses has the error in a field of its own, and so does OpenAI's server. The types of OpenAI's
        SDK have it in the event itself. So it is in both places.
        """
        code = self.code or str(self.status)
        error = describe_error("openai_responses", self.status, f"lamina: {self.message}", code)["error"]
        flat = {"code": code, "message": error["message"], "param": None}
        return {"type": "error", "sequence_number": number, **flat, "error": error}


class BrokenOff(Refusal):
    """The upstream broke the connection. An answer that has begun breaks for the client too.

    Clients try a broken connection again. An error event at the end of a whole stream they mostly do not.
    """

    def __init__(self, message: str) -> None:
        super().__init__(502, message)


def explain_unfit(error: BudgetExceeded | InvalidRequest, dialect: str) -> Refusal:
    """The refusal of a request that cannot be sent, and that must not be sent as it came."""
    if isinstance(error, BudgetExceeded):
        return explain_floor(error, dialect)
    return Refusal(400, str(error), error=error)


def explain_floor(error: BudgetExceeded, dialect: str) -> Refusal:
    """Why no request fits, in words that the client's own handling of long prompts recognises."""
    sizes = f"prompt is too long: {error.floor} tokens > {error.room} maximum"
    if error.reason == OPEN_LOOP:
        message = (
            f"{sizes}. The model's thinking in this tool loop is bound to all that came before it, and the "
            "upstream cannot be asked to drop it, or has refused that. So nothing before it "
            "may be shortened until the model has answered. Start a new conversation, turn thinking off, or "
            "give the upstream a larger `policy.budget`"
        )
        return Refusal(400, message, code="context_length_exceeded", error=error)
    message = (
        f"{sizes}. What cannot be left out (tools, "
        "system text, the last messages) is larger than that. Give the upstream a larger "
        "`policy.budget`, with a smaller `reserve` in it, or let the client send fewer tools"
    )
    if dialect == "anthropic":
        message += "; with Claude Code a smaller CLAUDE_CODE_MAX_OUTPUT_TOKENS leaves more of the window"
    return Refusal(400, message, code="context_length_exceeded", error=error)


def describe_error(dialect: str, status: int, message: str, code: str = "") -> dict[str, Any]:
    usual, google = _TYPES.get(status, ("api_error", "INTERNAL"))
    if dialect == "anthropic":
        return {"type": "error", "error": {"type": usual, "message": message}}
    if dialect == "gemini":
        return {"error": {"code": status, "message": message, "status": google}}
    if dialect == "ollama":
        return {"error": message}
    if dialect == "bedrock_converse":
        return {"__type": _EXCEPTIONS.get(status, "InternalServerException"), "message": message}
    return {"error": {"message": message, "type": usual, "param": None, "code": code or None}}
