"""The arguments of an SDK's function: how a fitted request is passed to it. Only for this package."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lamina.fitting.server_reports import with_headers

_BETA_FIELDS = ("context_management", "compaction")
"""Fields that lamina adds and that the other endpoints of an SDK have no argument for."""


def name_arguments(
    send: Callable[..., Any], arguments: tuple[Any, ...], request: dict[str, Any]
) -> dict[str, Any]:
    """All arguments by their names.

    SDKs take the request by keyword, and a few arguments by position too. If they do not match, the SDK
    itself says so.
    """
    if not arguments:
        return request
    names = list(inspect.signature(send).parameters)[: len(arguments)]
    if len(names) < len(arguments) or not request.keys().isdisjoint(names):
        send(*arguments, **request)  # raises the SDK's own error
    return dict(zip(names, arguments, strict=False)) | request


def add_headers(
    request: dict[str, Any], headers: Mapping[str, str], path: str, argument_names: frozenset[str]
) -> dict[str, Any]:
    """The arguments for the endpoint at this path, with lamina's headers.

    Only the endpoints under `client.beta` have an argument for each field that lamina may add. For others it
    goes into the body. A field that the caller gave as an argument stays one: the SDK says whether it takes
    that.
    """
    is_beta = path.startswith("beta.")
    request = with_headers(request, headers, beta=is_beta)
    if is_beta:
        return request
    arguments = dict(request)
    body_fields: dict[str, Any] = {}
    for name in _BETA_FIELDS:
        if name in request and name not in argument_names:
            body_fields[name] = arguments.pop(name)
    return add_to_body(arguments, body_fields)


def add_to_body(request: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """An SDK's arguments with these fields added to the body.

    Every SDK takes `extra_body`. An argument of that name came with a later release.
    """
    if not fields:
        return request
    return {**request, "extra_body": {**fields, **(request.get("extra_body") or {})}}
