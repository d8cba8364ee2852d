"""Remembers facts for every chat: finds them in messages, numbers them, and lists and changes them.

The facts themselves are those of `lamina.context.memory`. Each has a number as its name, which a later fact
never takes over while it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lamina.context.memory import Fact, Memory
from lamina.errors import BadInput

_REMEMBER = re.compile(r"^[ \t]*(?:please,? )?remember(?: that|:)[ \t]+(\S.*)$", re.IGNORECASE | re.MULTILINE)
"""A line that asks for it: `Remember that I live in Graz.` or `remember: tabs, not spaces`."""


def find_requests(text: str) -> list[str]:
    """What a message asks to be remembered: the rest of each line that begins with `remember that`."""
    return [match.strip() for match in _REMEMBER.findall(text)]


async def remember_fact(memory: Memory, text: str, *, source: str) -> str:
    """Add a fact under the next free number, unless there is the same already. Returns its number."""
    facts = await memory.facts()
    for fact in facts:
        if fact.text == text:
            return fact.name
    numbers = [int(fact.name) for fact in facts if fact.name.isdecimal()]
    name = str(max(numbers, default=0) + 1)
    await memory.remember(name, text, by="user", source=source)
    return name


async def change_fact(memory: Memory, name: str, text: str, *, source: str) -> None:
    """Put another text in the place of a fact."""
    if name not in [fact.name for fact in await memory.facts()]:
        raise BadInput(f"there is no fact {name!r}", place="/memory", hint="/memory lists them")
    await memory.remember(name, text, by="user", source=source)


def list_facts(facts: Iterable[Fact]) -> str:
    """One line for each fact: its number, its text, and the chat that it comes from."""
    lines = []
    for fact in facts:
        line = f"{fact.name:>3}  {fact.text}"
        if fact.source:
            line += f"  ({fact.source})"
        lines.append(line)
    return "\n".join(lines)
