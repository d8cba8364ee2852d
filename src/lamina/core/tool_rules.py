"""What a caller decided about the results of single tools: `{"read_spec": "whole", "grep": "short"}`.

- "whole": its results stay whole as long as the room allows. Together they hold at most one part in
  `WHOLE_PART` of the room, the newest first.
- "short": its results are the first that a cut sends as one line with a handle.
- "never": nothing of its calls and results is kept in digests, their lists of names, or reminders.

A name that ends with `*` is for all tools that begin with it. The longest name that fits decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from lamina.core.entries import begins_with
from lamina.core.opaque_blocks import read_api_calls
from lamina.core.values import Entry, Form, Ref, ToolCall, ToolResult
from lamina.errors import BadInput

ToolRule = Literal["whole", "short", "never"]
"""What a caller decided about the results of a tool."""

ToolRules = Mapping[str, ToolRule]
"""Rules by the names of tools."""

WHOLE_PART = 2
"""Results that stay whole hold at most one part in so many of the room: a cut needs the rest."""


def check_tool_rules(rules: object, place: str) -> None:
    """Raise BadInput for anything but rules by the names of tools."""
    words = ", ".join(repr(word) for word in get_args(ToolRule))
    hint = f'give {{"name of a tool": one of {words}}}'
    if not isinstance(rules, Mapping):
        raise BadInput(f"tools is {rules!r:.100}", place=place, hint=hint)
    for name, rule in rules.items():
        if not isinstance(name, str) or not name:
            raise BadInput(f"{name!r:.100} is no name of a tool", place=place, hint=hint)
        if not isinstance(rule, str) or rule not in get_args(ToolRule):
            raise BadInput(f"the rule of the tool {name!r:.100} is {rule!r:.100}", place=place, hint=hint)


def find_rule(rules: ToolRules, tool: str) -> ToolRule | None:
    """The rule of a tool; None if it has none."""
    if tool in rules:
        return rules[tool]
    fitting = [name for name in rules if name.endswith("*") and tool.startswith(name[:-1])]
    if not fitting:
        return None
    return rules[max(fitting, key=len)]


def map_rules(entries: Sequence[Entry], rules: ToolRules) -> dict[int, ToolRule]:
    """The rule of each call and result that has one, by position."""
    if not rules:
        return {}
    rule_of: dict[str, ToolRule | None] = {}
    rules_by_position: dict[int, ToolRule] = {}
    for position, entry in enumerate(entries):
        for tool in _list_tools(entry):
            if tool not in rule_of:
                rule_of[tool] = find_rule(rules, tool)
            rule = rule_of[tool]
            if rule is not None:
                rules_by_position[position] = rule
    return rules_by_position


def _list_tools(entry: Entry) -> list[str]:
    """The tools that an entry is a call or a result of: the client's, and those of the provider's server."""
    tools: list[str] = []
    for part in entry.segment.parts:
        match part:
            case ToolResult() if entry.asked is not None:
                tools.append(entry.asked.name)  # a result need not name its tool
            case ToolCall(name=name) | ToolResult(name=name):
                tools.append(name)
    # `tracker search` is the tool `search` of a server.
    tools += [api_call.name.rpartition(" ")[2] for api_call in read_api_calls(entry.segment.parts)]
    return tools


def choose_whole(entries: Sequence[Entry], rules: ToolRules, room: int) -> frozenset[Ref]:
    """The results that stay whole in this room, the newest first.

    What was shortened before, or entered shortened, is not held: a rule never raises a form.
    """
    left = room // WHOLE_PART
    held: set[Ref] = set()
    for position, rule in sorted(map_rules(entries, rules).items(), reverse=True):
        entry = entries[position]
        is_whole_result = entry.form is Form.FULL and begins_with(entry.parts, ToolResult)
        if rule == "whole" and is_whole_result and entry.tokens <= left:
            left -= entry.tokens
            held.add(entry.ref)
    return frozenset(held)


def find_silent(entries: Sequence[Entry], rules: ToolRules) -> frozenset[Ref]:
    """The calls and results of which nothing is kept in digests and reminders."""
    return frozenset(entries[at].ref for at, rule in map_rules(entries, rules).items() if rule == "never")
