"""The table of kinds: one row for everything a segment can be.

A row says how a kind is tagged, whose voice it has, in which layer it is sent, what goes first when room is
short, and whether its full text can be recovered. Users add rows (`{**KINDS, "ticket": Kind(...)}`)
and pass the table on; nothing is registered globally.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType

import msgspec

from lamina.core.values import Layer, Role, Segment
from lamina.errors import BadInput

ESSENTIAL, HIGH, MEDIUM, LOW = 0, 3, 5, 10
"""Priorities: of two attachments, the one with the higher number is lowered earlier."""


class Retention(StrEnum):
    """What may become of a kind when room is short."""

    CRITICAL = "critical"  # stays in full
    COMPRESSIBLE = "compressible"  # may be lowered on its own
    BATCH = "batch_compressible"  # may be lowered, and covered together with its neighbours
    DISPOSABLE = "disposable"  # goes first, before other attachments
    EPHEMERAL = "ephemeral"  # is sent in its own turn only: at its end, and gone when that is over


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `attributes` name the `attrs` shown in the tag, in this order.

    `attachment`: lamina placed it next to a message, so equal content may become a reference.
    `nested`: its attributes are elements inside the tag, before the content.
    `section`: a part of the system text that later segments with the same key replace, at a cut.
    `stability` orders sections: the lower, the earlier. `instructs`: a section says what the model has to do,
    so a changed one holds at once; memory only says what is so, and a change of it waits. `carried`: in the
    hoisted layout it goes into the library with the next turn. What was found for one question is sent in its
    own turn only.
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
    instructs: bool = True
    carried: bool = True


Kinds = Mapping[str, Kind]
"""A table of kinds by their names. Add rows to a copy of `KINDS`, and give it to `Options` or `Policy`."""


def _section(tag: str, stability: int, *attributes: str, instructs: bool = True) -> Kind:
    """The row of a section of the system text. No cut touches it."""
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
        instructs=instructs,
    )


def _attachment(
    tag: str,
    *attributes: str,
    priority: int = MEDIUM,
    recoverable: bool = True,
    nested: bool = False,
    carried: bool = True,
) -> Kind:
    """The row of an attachment: it stands beside a message of the user, and may be lowered."""
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
    """The row of something that is said in the conversation."""
    return Kind(tag=tag, role=role, retention=retention, recoverable=recoverable, attributes=attributes)


_CRITICAL = Retention.CRITICAL
_COMPRESSIBLE = Retention.COMPRESSIBLE
_BATCH = Retention.BATCH
_DISPOSABLE = Retention.DISPOSABLE

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
        "memory": _section("memory", 3, instructs=False),
        "user": _message("user_message", Role.USER, _CRITICAL, "role", recoverable=False),
        "assistant": _message("assistant_response", Role.ASSISTANT, _COMPRESSIBLE, "role"),
        "clarification": _message("assistant_clarification", Role.ASSISTANT, _COMPRESSIBLE, "role", "action"),
        "thinking": _message("thinking", Role.ASSISTANT, _DISPOSABLE, "subtype"),
        "tool_call": _message(
            "tool_call", Role.ASSISTANT, _COMPRESSIBLE, "action", "tool", "call_id", "status"
        ),
        "tool_result": _message(
            "tool_result", Role.TOOL, _COMPRESSIBLE, "tool", "call_id", "success", "error"
        ),
        "skill_call": _message(
            "skill_call", Role.ASSISTANT, _COMPRESSIBLE, "action", "skill", "call_id", "status"
        ),
        "skill_result": _message(
            "skill_result", Role.USER, _COMPRESSIBLE, "skill", "call_id", "success", "error"
        ),
        "spawn_subagent": _message(
            "spawn_subagent", Role.ASSISTANT, _COMPRESSIBLE, "subagent_id", "agent_type"
        ),
        "message_to_subagent": _message("message_to_subagent", Role.ASSISTANT, _COMPRESSIBLE, "subagent_id"),
        "subagent_result": _message("subagent_result", Role.USER, _COMPRESSIBLE, "subagent_id", "success"),
        "parent_message": _message(
            "parent_agent_message", Role.USER, _CRITICAL, "parent_agent_id", recoverable=False
        ),
        "todo": _message("todo_update", Role.ASSISTANT, _BATCH, "action"),
        "user_intervention": _message(
            "user_intervention", Role.USER, _CRITICAL, "subtype", recoverable=False
        ),
        "task_completed": _message("task_completed", Role.ASSISTANT, _COMPRESSIBLE),
        "task_abandoned": _message("task_abandoned", Role.ASSISTANT, _COMPRESSIBLE, "reason"),
        "task_terminated": _message("task_terminated", Role.ASSISTANT, _COMPRESSIBLE, "terminated_by"),
        # what stands for older segments
        "progress_summary": _message("progress_summary", Role.USER, _BATCH, "compacted_at", "original_count"),
        "digest": _message("digest", Role.USER, _BATCH, "covers"),
        "reminder": _message("reminder", Role.USER, _BATCH),
        # attachments
        "file": _attachment("file_context", "path"),
        "note": _attachment("note_context", "title", "path", nested=True),
        "url": _attachment("url_content", "url", nested=True),
        "web_tab": _attachment("web_tab_context", "title", "url", nested=True),
        "video": _attachment("video_context", "title", "url", nested=True),
        "pdf": _attachment("embedded_pdf", "name", nested=True),
        "excerpt": _attachment("excerpt", "source", "place", "score", priority=LOW, carried=False),
        "selected_text": _attachment(
            "selected_text", "title", "path", recoverable=False, priority=HIGH, nested=True
        ),
        "web_selected_text": _attachment(
            "web_selected_text", "title", "url", recoverable=False, priority=HIGH, nested=True
        ),
        "context_file": _attachment("context_file", "name", "path"),
        "agents_md": _attachment("agents_md", priority=HIGH),
        "apps_md": _attachment("apps_md", priority=HIGH),
        "clock": Kind(
            tag="now",
            role=Role.USER,
            layer=Layer.TURN,
            priority=LOW,
            retention=Retention.EPHEMERAL,
            attachment=True,
        ),
    }
)
"""The kinds of lamina itself. It is a default: code that reads kinds takes the table of its caller."""

REFERENCE_TAGS = ("prior_context", "reference", "late_result", "digest_notes", "reminder_notes")
"""Tags that lamina writes without a kind of their own; content may not forge these either."""


def kind_of(kinds: Kinds, segment: Segment) -> Kind:
    """The row of a segment's kind, or `BadInput` with a list of the kinds that there are."""
    try:
        return kinds[segment.kind]
    except KeyError:
        names = ", ".join(sorted(kinds))
        raise BadInput(
            f"unknown kind {segment.kind!r}",
            place=f"segment {segment.key!r}",
            hint=f"use one of {names}, or pass kinds={{**KINDS, {segment.kind!r}: Kind(...)}}",
        ) from None


def check_kinds(names: Iterable[str], kinds: Kinds, place: str) -> None:
    """Raise BadInput for a name that no kind has, since nothing would be chosen or worded by it."""
    for name in sorted(map(str, names)):
        if name not in kinds:
            [nearest] = get_close_matches(name, kinds, n=1, cutoff=0)
            hint = f"the nearest is {nearest!r}; or pass kinds={{**KINDS, {name!r}: Kind(...)}}"
            raise BadInput(f"there is no kind {name!r:.100}", place=place, hint=hint)


def is_section(kinds: Kinds, segment: Segment) -> bool:
    """Whether later system text with the same key replaces this one, at a cut.

    Sections have kinds of their own; plain system text is one if somebody gave it a key.
    """
    named_system_text = segment.kind == "system" and bool(segment.key)
    return named_system_text or kind_of(kinds, segment).section


def has_tag(kinds: Kinds, segment: Segment) -> bool:
    """Whether a segment is sent in the tag of its kind, as attachments and sections are.

    A tagged wording puts everything else into tags too.
    """
    kind = kind_of(kinds, segment)
    return kind.attachment or kind.section


def is_turn_scoped(kinds: Kinds, segment: Segment) -> bool:
    """Whether a segment is sent in its own turn only, as the time is. Pinned segments stay."""
    return kind_of(kinds, segment).retention is Retention.EPHEMERAL and not segment.pinned


def is_users_message(kinds: Kinds, segment: Segment) -> bool:
    """Whether the user said this: a message, not a file beside it, a result or a summary."""
    return segment.role is Role.USER and kind_of(kinds, segment).retention is Retention.CRITICAL


def recoverable(kinds: Kinds, segment: Segment) -> bool:
    """Whether the full text can be recovered: what the segment says, else what its kind says."""
    if segment.recover is None:
        return kind_of(kinds, segment).recoverable
    return bool(segment.recover)


def priority(kinds: Kinds, segment: Segment) -> int:
    """How early a segment is lowered: what the segment says, else what its kind says."""
    if segment.priority is None:
        return kind_of(kinds, segment).priority
    return segment.priority
