"""Front matter: the fields between two `---` lines at the top of a Markdown page.

    ---
    epoch: 1729873880000
    topic: "Old chat"
    tags:
      - "copilot-conversation"
    ---

Only this much YAML is written and read: words, numbers, and lists of words. Words are written in quotes, so
that no value can end the front matter or begin another field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from lamina.core.text.characters import WHITE_SPACE, is_blank

_FRONT_MATTER = re.compile(
    r"---\n((?:[^\n]*\n)*?)---(?:\n|\Z)"
)  # "---\ntopic: a\n---\n": group 1 is "topic: a\n"

_SINGLE_QUOTED = re.compile(r"'(.*)'", re.DOTALL)  # "'it''s'": group 1 is "it''s"


def format_front_matter(fields: Mapping[str, str | int | Iterable[str]]) -> str:
    """Write fields as front matter.

    `{"epoch": 7, "tags": ["a"]}` becomes the lines `epoch: 7`, `tags:` and `  - "a"` between two of
    `---`.
    """
    lines = ["---"]
    for name, value in fields.items():
        if isinstance(value, int):
            lines.append(f"{name}: {value}")
        elif isinstance(value, str):
            lines.append(f"{name}: {_quote(value)}")
        else:
            lines.append(f"{name}:")
            lines += [f"  - {_quote(item)}" for item in value]
    lines.append("---")
    return "\n".join(lines) + "\n"


def split_front_matter(page: str) -> tuple[dict[str, str | list[str]], str]:
    """Split a page into the fields of its front matter, none if it has no front matter, and the rest."""
    match = _FRONT_MATTER.match(page)
    if match is None:
        return {}, page
    return _read_fields(match[1]), page[match.end() :]


def _read_fields(text: str) -> dict[str, str | list[str]]:
    """The fields in these lines. Lines that are neither a field nor an item of a list are skipped.

    `tags:` begins a list, and ` - "a"` in the next line is its first item.
    """
    fields: dict[str, str | list[str]] = {}
    items: list[str] = []
    for line in text.split("\n"):
        if line.startswith(("  - ", "- ")):
            items.append(_unquote(line.partition("- ")[2]))
            continue
        name, colon, value = line.partition(":")
        if not colon or is_blank(name) or line.startswith(" "):
            continue
        items = []
        if is_blank(value):
            fields[name.strip(WHITE_SPACE)] = items
        else:
            fields[name.strip(WHITE_SPACE)] = _unquote(value)
    return fields


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unquote(value: str) -> str:
    """A value without its quotes, which are those of YAML: `'it''s'`, `"it's"`, or none."""
    value = value.strip(WHITE_SPACE)
    single_quoted = _SINGLE_QUOTED.fullmatch(value)
    if single_quoted:
        return single_quoted[1].replace("''", "'")
    if not value.startswith('"'):
        return value
    try:
        text = json.loads(value, strict=False)
    except ValueError:
        # people edit these pages, so quotes that do not close are taken off all the same
        return value.strip('"')
    if not isinstance(text, str):
        return value
    return text
