"""Workspace tools for a model: ls, read, write, edit, mv, rm, touch, grep; and remember, forget.

    tools = workspace_tools(Workspace("project"))
    head = PlainHead(tools=tuple(Tool(**tool.definition) for tool in tools))
    results = [await answer(tools, call) for call in recorded.calls]

Every call gets a result. If something goes wrong, the result says so, with `error` set; nothing is raised.
The loop decides which calls may run: `changes` helps it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread

from lamina.context.memory import Memory
from lamina.context.port import run_in_thread
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Segment, ToolCall
from lamina.errors import BadInput
from lamina.segments import result
from lamina.workspace.documents import text_in
from lamina.workspace.grep import grep
from lamina.workspace.workspace import FolderItem, Workspace

__all__ = ["Offer", "answer", "memory_tools", "workspace_tools"]

LINES = 2_000
"""Lines that one call of read returns at most."""

CHARACTERS = 200_000
"""Characters that one call of read returns at most."""

ITEMS = 500
"""Items that one call of ls lists at most."""

MATCHES = 200
"""Matches that one call of grep returns at most."""

WIDEST = 400
"""Characters of one line that matches."""

Run = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Runs a tool with its arguments, and returns the text of the result."""

Schemas = dict[str, dict[str, Any]]
"""The arguments of a tool by name, each with its JSON schema."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and the function behind it. `changes`: a call changes something."""

    name: str
    description: str
    schema: dict[str, Any]
    run: Run
    changes: bool = False

    @property
    def definition(self) -> dict[str, Any]:
        """Name, description and schema, as every provider has them."""
        return {"name": self.name, "description": self.description, "schema": self.schema}


async def answer(tools: Iterable[Offer], call: ToolCall) -> Segment:
    """The result of a call, whether it succeeds or fails."""
    try:
        tool = _find_tool(tools, call.name)
        text = await tool.run(_read_arguments(tool, call))
    except BadInput as error:
        return result(str(error), id=call.id, name=call.name, error=True)
    return result(text, id=call.id, name=call.name)


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_PATH = {"type": "string", "description": "Path from the root of the workspace, with / between folders."}
_FIRST_LINE = {"type": "integer", "minimum": 1, "description": "First line."}
_PATTERN = {**_TEXT, "description": "Regular expression."}
_OLD_TEXT = {**_TEXT, "description": "Exact text that is there once."}
_EVERY = {**_FLAG, "description": "Replace every place."}
_LAST_LINE = {"type": "integer", "minimum": 1, "description": "Last line."}


def workspace_tools(space: Workspace, *, changes: bool = True) -> tuple[Offer, ...]:
    """The tools over one workspace. Without `changes` only those that read."""
    reading = tuple(_offer_for_files(space, tool, changes=False) for tool in _READING)
    if not changes:
        return reading
    return reading + tuple(_offer_for_files(space, tool, changes=True) for tool in _CHANGING)


def memory_tools(memory: Memory, *, source: str = "") -> tuple[Offer, ...]:
    """Tools to remember and forget. What a model remembers is stored as its own word, not as the user's."""
    name_schema = {"type": "string", "description": "A short name; a fact of the same name is replaced."}
    fact_schema = {"type": "string", "description": "One fact, in a sentence."}

    async def remember(arguments: Mapping[str, Any]) -> str:
        name = arguments["name"]
        await _check_not_by_user(memory, name)
        replaced = await memory.remember(name, arguments["fact"], by="model", source=source)
        if replaced is None:
            return f"remembered {name!r}"
        return f"remembered {name!r}, instead of: {replaced.text}"

    async def forget(arguments: Mapping[str, Any]) -> str:
        name = arguments["name"]
        await _check_not_by_user(memory, name)
        forgotten = await memory.forget(name, by="model", source=source)
        return f"forgotten: {forgotten.text}"

    return (
        _offer(
            "remember",
            "Keeps a fact for later conversations.",
            remember,
            {"name": name_schema, "fact": fact_schema},
            ("name", "fact"),
            changes=True,
        ),
        _offer("forget", "Forgets a fact.", forget, {"name": name_schema}, ("name",), changes=True),
    )


async def _check_not_by_user(memory: Memory, name: str) -> None:
    """A model may change what a model said. Only the user changes what the user said."""
    authors = {fact.name: fact.by for fact in await memory.facts()}
    if authors.get(name.strip(WHITE_SPACE)) == "user":
        raise BadInput(
            "the user said this, and only the user changes it", place=name, hint="use another name"
        )


# what the tools do; their texts go to a model


def _ls(space: Workspace, path: str = ".") -> str:
    """What is in a folder, one item on each line."""
    items = space.items(path)
    lines = [_describe_item(item) for item in items[:ITEMS]]
    if len(items) > ITEMS:
        lines.append(f"… {len(items) - ITEMS:,} more")
    return "\n".join(lines) or "(empty)"


def _describe_item(item: FolderItem) -> str:
    """An item of a folder in words: `src/`, `a.py (120 bytes)`."""
    name = item.path.rpartition("/")[2]
    if item.why:
        return f"{name} ({item.why}: not available)"
    if item.folder:
        return f"{name}/"
    return f"{name} ({item.size:,} bytes)"


def _read(space: Workspace, path: str, start: int = 1, end: int | None = None) -> str:
    """Lines of a file. Too much at once is refused: a model would take a part for the whole.

    Lines count from 1, and `end` is the last of them.
    """
    text = text_in(path, space.read(path))
    lines = text.removesuffix("\n").split("\n")
    chosen_lines = lines[start - 1 : end]
    if not chosen_lines:
        problem = f"no lines {start} to {end or 'the end'}"
        raise BadInput(problem, place=path, hint=f"it has {len(lines):,} lines")
    if len(chosen_lines) > LINES or sum(map(len, chosen_lines)) > CHARACTERS:
        problem = f"too much at once: {len(lines):,} lines, {len(text):,} characters"
        raise BadInput(problem, place=path, hint="read it in parts with start and end, or grep it")
    return "\n".join(chosen_lines) or "(empty)"


def _grep(space: Workspace, pattern: str, path: str = ".", *, ignore_case: bool = False) -> str:
    """The lines that match a pattern, as `path:line: text`."""
    matches = grep(space, pattern, path, ignore_case=ignore_case, most=MATCHES)
    lines = [f"{match.path}:{match.line}: {match.text[:WIDEST]}" for match in matches.matches]
    if not lines:
        lines.append("(no match)")
    if matches.more:
        lines.append(f"(only the first {MATCHES:,} matches)")
    if matches.notes:
        lines.append(f"({len(matches.notes):,} things were not searched)")
    return "\n".join(lines)


def _edit(space: Workspace, path: str, old: str, new: str, *, all: bool = False) -> str:  # noqa: A002 - for models
    """Replace a text in a file, and say in how many places."""
    count = space.edit(path, old.encode(), new.encode(), every=all)
    if count == 1:
        return "replaced in 1 place"
    return f"replaced in {count} places"


def _write(space: Workspace, path: str, content: str) -> str:
    """Write a file, and say whether it is new."""
    data = content.encode()
    is_new = space.write(path, data)
    return f"{'made' if is_new else 'replaced'}, {len(data):,} bytes"


def _mv(space: Workspace, path: str, to: str) -> str:
    space.move(path, to)
    return f"moved to {space.relative(to)}"


def _rm(space: Workspace, path: str) -> str:
    space.remove(path)
    return "removed"


def _touch(space: Workspace, path: str) -> str:
    is_new = space.touch(path)
    return "made" if is_new else "it was there already"


# how tools are offered


class _FileTool(NamedTuple):
    """A tool for files: what does its work, its arguments, and which of these a call must have."""

    name: str
    description: str
    function: Callable[..., str]
    schemas: Schemas
    required: tuple[str, ...] = ()


_READING = (
    _FileTool("ls", "Lists a folder.", _ls, {"path": _PATH}),
    _FileTool(
        name="read",
        description="Reads a text file, or lines start to end of it.",
        function=_read,
        schemas={"path": _PATH, "start": _FIRST_LINE, "end": _LAST_LINE},
        required=("path",),
    ),
    _FileTool(
        name="grep",
        description="Finds lines in a file or below a folder.",
        function=_grep,
        schemas={"pattern": _PATTERN, "path": _PATH, "ignore_case": _FLAG},
        required=("pattern",),
    ),
)

_CHANGING = (
    _FileTool(
        name="edit",
        description="Replaces an exact text in a file.",
        function=_edit,
        schemas={"path": _PATH, "old": _OLD_TEXT, "new": _TEXT, "all": _EVERY},
        required=("path", "old", "new"),
    ),
    _FileTool(
        "write", "Writes a whole file.", _write, {"path": _PATH, "content": _TEXT}, ("path", "content")
    ),
    _FileTool("mv", "Moves a file or folder.", _mv, {"path": _PATH, "to": _PATH}, ("path", "to")),
    _FileTool("rm", "Removes a file, or an empty folder.", _rm, {"path": _PATH}, ("path",)),
    _FileTool("touch", "Makes an empty file.", _touch, {"path": _PATH}, ("path",)),
)


def _offer_for_files(space: Workspace, tool: _FileTool, *, changes: bool) -> Offer:
    """A tool for the files of a workspace.

    If its caller is cancelled, nobody waits for a tool that only reads. One that changes something is waited
    for, since it may have begun.
    """

    async def run(arguments: Mapping[str, Any]) -> str:
        if changes:
            return await to_thread.run_sync(partial(tool.function, space, **arguments))
        return await run_in_thread(tool.function, space, **arguments)

    return _offer(tool.name, tool.description, run, tool.schemas, tool.required, changes=changes)


def _offer(
    name: str,
    description: str,
    run: Run,
    schemas: Schemas,
    required: tuple[str, ...],
    *,
    changes: bool = False,
) -> Offer:
    """A tool with the JSON Schema of its arguments."""
    schema = {
        "type": "object",
        "properties": schemas,
        "required": list(required),
        "additionalProperties": False,
    }
    return Offer(name=name, description=description, schema=schema, run=run, changes=changes)


# how calls are read


def _find_tool(tools: Iterable[Offer], name: str) -> Offer:
    """The tool of this name. Raises BadInput if there is none."""
    for tool in tools:
        if tool.name == name:
            return tool
    raise BadInput("there is no such tool", place=name[:100])


_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}


def _read_arguments(tool: Offer, call: ToolCall) -> dict[str, Any]:
    """The arguments of a call, if they are what the schema says. A null counts as missing.

    A model gets the hint as the result of its call, and can make the call again.
    """
    try:
        decoded = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"arguments that are no JSON object: {error!s:.100}", place=call.name) from None
    schemas: Schemas = tool.schema["properties"]
    arguments = {name: value for name, value in decoded.items() if value is not None}
    hint = f"the arguments are {', '.join(schemas)}"
    missing = set(tool.schema["required"]) - set(arguments)
    if missing:
        raise BadInput(f"missing: {', '.join(sorted(missing))[:100]}", place=call.name, hint=hint)
    unknown = set(arguments) - set(schemas)
    if unknown:
        raise BadInput(f"unknown: {', '.join(sorted(unknown))[:100]}", place=call.name, hint=hint)
    for name, value in arguments.items():
        _check_argument(value, schemas[name]["type"], f"{call.name}.{name}")
    return arguments


def _check_argument(value: object, type_name: str, place: str) -> None:
    """Refuse a value of another type than the schema says, and text that is not UTF-8."""
    problem = f"{value!r:.50} is no {type_name}"
    if type(value) is not _TYPES[type_name]:  # `isinstance` would take True for an integer
        raise BadInput(problem, place=place)
    if type(value) is int and value < 1:  # integers are numbers of lines
        raise BadInput(problem, place=place)
    if isinstance(value, str):
        _check_encodable(value, place)


def _check_encodable(text: str, place: str) -> None:
    """Refuse half of a surrogate pair, which a JSON escape can smuggle in."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("half of a character", place=place, hint="give whole characters") from None
