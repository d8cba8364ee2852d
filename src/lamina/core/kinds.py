"""The table of kinds: one row for everything a segment can be.

A row says how a kind is tagged, whose voice it has, where it stands, what goes first when room is
short, and whether its full text can be had again. Users add rows (`{**KINDS, "ticket": Kind(...)}`)
and pass the table on; nothing is registered globally.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from lamina.core.values import Layer, Role, Segment
from lamina.errors import BadInput

ESSENTIAL, HIGH, MEDIUM, LOW = 0, 3, 5, 10
"""Priorities: the higher the number, the earlier it is lowered."""


class Retention(StrEnum):
    """What may become of a kind when room is short."""

    CRITICAL = "critical"  # stays in full
    COMPRESSIBLE = "compressible"  # may be lowered on its own
    BATCH = "batch_compressible"  # may be lowered, and covered together with its neighbours
    DISPOSABLE = "disposable"  # goes first
    EPHEMERAL = "ephemeral"  # stands in its own turn only: at its end, and gone when that is over


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `attributes` name the `attrs` shown in the tag, in this order.

    `attachment`: lamina placed it beside a message, so equal content may become a reference.
    `nested`: its attributes stand as elements inside the tag, before the content.
    `section`: a part of the system text that later segments with the same key replace, at a cut.
    `stability` orders sections: lower stands earlier. `carried`: in the hoisted layout it goes into the
    library with the next turn; what was found for one question stands in its own turn only.
    """

    tag: str
    role: Role
    layer: Layer = Layer.HISTORY
    priority: int = MEDIUM
    retention: Retention = Retention.COMPRESSIBLE
    recoverable: bool = True
    attributes: tuple[str, ...] = ()
    attachment: bool = False
    nested: bool = False
    section: bool = False
    stability: int = 0
    carried: bool = True


Kinds = Mapping[str, Kind]


def _section(tag: str, stability: int, *attributes: str) -> Kind:
    return Kind(
        tag=tag,
        role=Role.SYSTEM,
        layer=Layer.SYSTEM,
        priority=ESSENTIAL,
        retention=Retention.CRITICAL,
        recoverable=False,
        attributes=attributes,
        section=True,
        stability=stability,
    )


def _attached(
    tag: str,
    *attributes: str,
    priority: int = MEDIUM,
    recoverable: bool = True,
    nested: bool = False,
    carried: bool = True,
) -> Kind:
    return Kind(
        tag=tag,
        role=Role.USER,
        layer=Layer.TURN,
        priority=priority,
        recoverable=recoverable,
        attributes=attributes,
        attachment=True,
        nested=nested,
        carried=carried,
    )


def _message(tag: str, role: Role, retention: Retention, *attributes: str, recoverable: bool = True) -> Kind:
    return Kind(tag=tag, role=role, retention=retention, recoverable=recoverable, attributes=attributes)


_U, _A, _T = Role.USER, Role.ASSISTANT, Role.TOOL
_CRITICAL, _COMPRESSIBLE = Retention.CRITICAL, Retention.COMPRESSIBLE
_BATCH, _DISPOSABLE = Retention.BATCH, Retention.DISPOSABLE

KINDS: Kinds = MappingProxyType(
    {
        # the system text, most stable first
        "system": Kind(
            tag="system_context",
            role=Role.SYSTEM,
            layer=Layer.SYSTEM,
            priority=ESSENTIAL,
            retention=_CRITICAL,
            recoverable=False,
            attributes=("priority",),
        ),
        "persona": _section("persona", 1),
        "project": _section("project", 2, "name"),
        "memory": _section("memory", 3),
        "user": _message("user_message", _U, _CRITICAL, "role", recoverable=False),
        "assistant": _message("assistant_response", _A, _COMPRESSIBLE, "role"),
        "clarification": _message("assistant_clarification", _A, _COMPRESSIBLE, "role", "action"),
        "thinking": _message("thinking", _A, _DISPOSABLE, "subtype"),
        "tool_call": _message("tool_call", _A, _COMPRESSIBLE, "action", "tool", "call_id", "status"),
        "tool_result": _message("tool_result", _T, _COMPRESSIBLE, "tool", "call_id", "success", "error"),
        "skill_call": _message("skill_call", _A, _COMPRESSIBLE, "action", "skill", "call_id", "status"),
        "skill_result": _message("skill_result", _U, _COMPRESSIBLE, "skill", "call_id", "success", "error"),
        "spawn_subagent": _message("spawn_subagent", _A, _COMPRESSIBLE, "subagent_id", "agent_type"),
        "message_to_subagent": _message("message_to_subagent", _A, _COMPRESSIBLE, "subagent_id"),
        "subagent_result": _message("subagent_result", _U, _COMPRESSIBLE, "subagent_id", "success"),
        "parent_message": _message(
            "parent_agent_message", _U, _CRITICAL, "parent_agent_id", recoverable=False
        ),
        "todo": _message("todo_update", _A, _BATCH, "action"),
        "user_intervention": _message("user_intervention", _U, _CRITICAL, "subtype", recoverable=False),
        "task_completed": _message("task_completed", _A, _COMPRESSIBLE),
        "task_abandoned": _message("task_abandoned", _A, _COMPRESSIBLE, "reason"),
        "task_terminated": _message("task_terminated", _A, _COMPRESSIBLE, "terminated_by"),
        # what stands for older segments
        "progress_summary": _message("progress_summary", _U, _BATCH, "compacted_at", "original_count"),
        "digest": _message("digest", _U, _BATCH, "covers"),
        # attachments
        "file": _attached("file_context", "path"),
        "note": _attached("note_context", "title", "path", nested=True),
        "url": _attached("url_content", "url", nested=True),
        "web_tab": _attached("web_tab_context", "title", "url", nested=True),
        "video": _attached("video_context", "title", "url", nested=True),
        "pdf": _attached("embedded_pdf", "name", nested=True),
        "excerpt": _attached("excerpt", "source", "place", "score", priority=LOW, carried=False),
        "selected_text": _attached(
            "selected_text", "title", "path", recoverable=False, priority=HIGH, nested=True
        ),
        "web_selected_text": _attached(
            "web_selected_text", "title", "url", recoverable=False, priority=HIGH, nested=True
        ),
        "context_file": _attached("context_file", "name", "path"),
        "agents_md": _attached("agents_md", priority=HIGH),
        "apps_md": _attached("apps_md", priority=HIGH),
        "clock": Kind(
            tag="now", role=_U, layer=Layer.TURN, priority=LOW, retention=Retention.EPHEMERAL, attachment=True
        ),
    }
)

REFERENCE_TAGS = ("prior_context", "reference", "late_result", "digest_notes")
"""Tags that lamina writes without a kind of their own; content may not forge these either."""


def row(kinds: Kinds, segment: Segment) -> Kind:
    """The row of a segment's kind, or a typed error that lists what is known."""
    try:
        return kinds[segment.kind]
    except KeyError:
        known = ", ".join(sorted(kinds))
        raise BadInput(
            f"unknown kind {segment.kind!r}",
            place=f"segment {segment.key!r}",
            hint=f"use one of {known}, or pass kinds={{**KINDS, {segment.kind!r}: Kind(...)}}",
        ) from None


def is_section(kinds: Kinds, segment: Segment) -> bool:
    """Whether later system text with the same key replaces this one, at a cut.

    Sections have kinds of their own; plain system text is one if somebody gave it a key.
    """
    named_system_text = segment.kind == "system" and bool(segment.key)
    return named_system_text or row(kinds, segment).section


def is_turn_scoped(kinds: Kinds, segment: Segment) -> bool:
    """Whether a segment stands in its own turn only, as the time does. What is pinned stays."""
    return row(kinds, segment).retention is Retention.EPHEMERAL and not segment.pinned


def recoverable(kinds: Kinds, segment: Segment) -> bool:
    """Whether the full text can be had again: what the segment says, else what its kind says."""
    return row(kinds, segment).recoverable if segment.recover is None else bool(segment.recover)


def priority(kinds: Kinds, segment: Segment) -> int:
    return row(kinds, segment).priority if segment.priority is None else segment.priority
