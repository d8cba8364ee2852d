"""Where system messages among the other messages may stand, and in whose voice they are sent.

Rule A11: newer models take messages with the role "system" after a user message or a server tool's result,
and only last or before the assistant. Older models refuse them, so there they are sent in the user's voice.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import groupby
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.repair import find_side
from lamina.core.values import Entry, Head, Layer, Raw, Ref, Role
from lamina.dialects.anthropic.messages import is_server_result
from lamina.dialects.anthropic.model import NAME, read_model, refuses_system_messages, takes_system_messages
from lamina.dialects.origins import ON_THE_WIRE, group_entries

DEMOTED = "said in the user's voice: the model takes no system messages"
"""The line in the ledger's repairs. It is stored, so it may not change."""


class VoiceChooser:
    """Chooses the role in which an entry is sent.

    If the model takes no system messages, later instructions are sent as the user's. If it is not known
    whether the model takes them, a client's own system messages are passed on. What an earlier request sent
    in the user's voice (`repairs` has a line for it) stays so.
    """

    def __init__(self, model: str, repairs: Container[str] = ()) -> None:
        self.takes_system = takes_system_messages(model)
        self.refuses_system = refuses_system_messages(model)
        self.repairs = repairs

    def choose(self, entry: Entry) -> str:
        if entry.role is not Role.SYSTEM:
            return find_side(entry.role)
        if self.refuses_system or f"{entry.ref}{ON_THE_WIRE}" in self.repairs:
            return "user"
        if self.takes_system or note_of(entry):
            return "system"
        return "user"


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """The lines for the ledger: system messages that this request, and so every later one, has to demote."""
    if not refuses_system_messages(read_model(envelope.head.parameters)):
        return {}
    demoted: dict[Ref, str] = {}
    for entry in envelope.sent:
        is_system_message = entry.role is Role.SYSTEM and entry.layer is not Layer.SYSTEM
        if is_system_message and note_of(entry):
            demoted[Ref(f"{entry.ref}{ON_THE_WIRE}")] = DEMOTED
    return demoted


def order(entries: Sequence[Entry], head: Head) -> list[int]:
    """The positions of entries in the order in which they are sent."""
    positions = {id(entry): position for position, entry in enumerate(entries)}
    placed = place_system_messages(group_entries(entries), VoiceChooser(read_model(head.parameters)))
    return [positions[id(entry)] for group in placed for entry in group]


def place_system_messages(message_groups: list[list[Entry]], voices: VoiceChooser) -> list[list[Entry]]:
    """Moves each system message to the first place, from its own on, where the API takes it (A11).

    That is after the user or a server tool's result, and last or before the assistant. A directive, which has
    no words, may stand before the user too. System messages without such a place come last, and `check`
    reports that they cannot stand there.
    """
    placed: list[list[Entry]] = []
    waiting: list[list[Entry]] = []
    may_follow = False
    for group in message_groups:
        voice = voices.choose(group[0])
        if voice == "system":
            if may_follow and not waiting and _is_directive(group[0]):
                placed.append(group)
            else:
                waiting.append(group)
            continue
        if voice == "assistant" and may_follow:
            placed += waiting
            waiting = []
        placed.append(group)
        may_follow = voice == "user" or _holds_server_result(group[-1])
    return placed + waiting


def join_system_messages(run: list[list[Entry]]) -> list[list[Entry]]:
    """Joins system messages in a row into one, which is what the API takes. Directives stay by themselves."""
    joined: list[list[Entry]] = []
    for are_directives, groups_in_a_row in groupby(run, key=lambda group: _is_directive(group[0])):
        if are_directives:
            joined += groups_in_a_row
        else:
            joined.append([entry for group in groups_in_a_row for entry in group])
    return joined


def note_of(entry: Entry) -> dict[str, Any]:
    """What this dialect's parser noted on the entry's segment, whether or not it is sent as it came."""
    note: dict[str, Any] = entry.segment.meta.get("wire", {})
    if note.get("dialect") != NAME:
        return {}
    return note


def _is_directive(entry: Entry) -> bool:
    """Whether a system message has no words: it came with an empty list of blocks and only sets something."""
    return isinstance(entry.parts[0], Raw) and note_of(entry).get("block") == []


def _holds_server_result(entry: Entry) -> bool:
    part = entry.parts[-1]
    return isinstance(part, Raw) and part.dialect == NAME and is_server_result(part.data)
