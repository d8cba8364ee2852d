"""Translates a request for another dialect: its head, and the options to build for that dialect.

Messages need almost no translation. A log is the same for all dialects, and each renders from typed parts
what it did not parse itself. What a dialect cannot express, the core lowers, with the reason that the dialect
gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.core.bound_thinking import Binding
from lamina.core.layout import Layout
from lamina.core.options import Options
from lamina.core.values import RequestHead, Segment
from lamina.dialects.port import Dialect, OwnHead, Request

_DEFAULT_LAYOUT = Layout()


def translate_head(head: RequestHead, source: Dialect, target: Dialect, *, model: str = "") -> OwnHead:
    """Tools and parameters for another dialect, and the names of those that it cannot express."""
    plain = source.head.read(head)
    if model:
        plain = msgspec.structs.replace(plain, model=model)
    own = target.head.write(plain)
    return OwnHead(head=own.head, left=plain.left + own.left)


def translate_log(log: Sequence[Segment]) -> tuple[Segment, ...]:
    """The log for another dialect. Nobody runs programs there, so the model reads what a program read.

    It is counted then, and may be lowered like any other result.
    """
    translated = list(log)
    for position, segment in enumerate(log):
        if segment.unread:
            translated[position] = msgspec.structs.replace(segment, unread=False, pinned=False)
    return tuple(translated)


def choose_options(
    dialect: Dialect,
    head: RequestHead,
    *,
    layout: Layout = _DEFAULT_LAYOUT,
    drop_block: bool = True,
    **more: Any,
) -> Options:
    """How to build for a dialect: what it mends, what it cannot express, what a changed past does there.

    `drop_block`: whoever sends the request asks the server to drop thinking that a cut has unbound
    (`ServerHelp.ask_to_drop_thinking`). `more` are options that the caller sets besides, such as an order of
    cuts.
    """
    wire = dialect.wire
    takes_late_system = wire.takes_late_system
    return Options(
        layout=layout,
        repairs=wire.repairs,
        carries=wire.carries,
        opening=wire.opening,
        late_system=takes_late_system is not None and takes_late_system(head.parameters),
        binding=choose_binding(dialect, head.parameters, drop_block=drop_block),
        **more,
    )


def choose_binding(dialect: Dialect, request: Request, *, drop_block: bool) -> Binding:
    """What a changed past does to thinking in a request, if its server may be asked to drop thinking."""
    server = dialect.server
    if server is None:
        return "none"
    binding = server.binding(request)
    if binding == "strict" and drop_block:
        return server.binding(server.ask_to_drop_thinking(request))
    return binding
