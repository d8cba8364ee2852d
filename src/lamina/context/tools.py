"""Workspace tools for a model: ls, read, write, edit, mv, rm, touch, grep; and remember, forget.

    tools = workspace_tools(Workspace("project"))
    head = PlainHead(tools=tuple(Tool(**tool.definition) for tool in tools))
    results = [await answer(tools, call) for call in recorded.calls]

Every call is answered with a result: what goes wrong is said in it, with `error` set, never raised. Paths and
lines are arguments under names that `superseding` knows, so a file that is read again, written or moved makes
the older reading of it redundant. Which of the calls may run is the loop's to decide: `changes` helps it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from anyio import to_thread

from lamina.context.memory import Memory
from lamina.context.port import in_thread
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Segment, ToolCall
from lamina.errors import BadInput
from lamina.segments import result
from lamina.workspace.documents import text_in
from lamina.workspace.grep import grep
from lamina.workspace.paths import joined, steps
from lamina.workspace.workspace import FolderItem, Workspace

LINES, CHARACTERS = 2_000, 200_000
"""What one reading shows: lines, and characters; the rest is read by its lines."""

ITEMS, MATCHES, WIDEST = 500, 200, 400
"""What one listing and one search show, and the characters of one line that matches."""

_PATH = {"type": "string", "description": "Path from the root of the workspace, with / between folders."}


Run = Callable[[Mapping[str, Any]], Awaitable[str]]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and the function behind it. `changes`: a call leaves something other than it was."""

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
    """The result of a call, whatever comes of it."""
    try:
        tool = _named(tools, call.name)
        text = await tool.run(_arguments(tool, call))
    except BadInput as refused:
        return result(str(refused), id=call.id, name=call.name, error=True)
    return result(text, id=call.id, name=call.name)


def workspace_tools(space: Workspace, *, changes: bool = True) -> tuple[Offer, ...]:
    """The tools over one workspace; without `changes` only those that look."""
    line, text, flag = {"type": "integer", "minimum": 1}, {"type": "string"}, {"type": "boolean"}
    span = {"start": {**line, "description": "First line."}, "end": {**line, "description": "Last line."}}
    found = {"pattern": {**text, "description": "Regular expression."}, "path": _PATH, "ignore_case": flag}
    looks = (
        _looks(space, "ls", "Lists a folder.", _ls, {"path": _PATH}),
        _looks(
            space,
            "read",
            "Reads a text file, or lines start to end of it.",
            _read,
            {"path": _PATH} | span,
            "path",
        ),
        _looks(space, "grep", "Finds lines in a file or below a folder.", _grep, found, "pattern"),
    )
    whole = {"path": _PATH, "content": text}
    exact = {
        "path": _PATH,
        "old": {**text, "description": "Exact text that is there once."},
        "new": text,
        "all": {**flag, "description": "Replace every place."},
    }
    acts = (
        _acts(space, "edit", "Replaces an exact text in a file.", _edit, exact, "path", "old", "new"),
        _acts(space, "write", "Writes a whole file.", _write, whole, "path", "content"),
        _acts(space, "mv", "Moves a file or folder.", _mv, {"path": _PATH, "to": _PATH}, "path", "to"),
        _acts(space, "rm", "Removes a file, or an empty folder.", _rm, {"path": _PATH}, "path"),
        _acts(space, "touch", "Makes an empty file.", _touch, {"path": _PATH}, "path"),
    )
    return looks + acts if changes else looks


def memory_tools(memory: Memory[Any], *, source: str = "") -> tuple[Offer, ...]:
    """Tools to remember and forget. What a model remembers is kept as its own word, never as the user's."""
    name = {"type": "string", "description": "A short name; a fact of the same name is replaced."}
    fact = {"type": "string", "description": "One fact, in a sentence."}

    async def remember(given: Mapping[str, Any]) -> str:
        await _own(memory, given["name"])
        old = await memory.remember(given["name"], given["fact"], by="model", source=source)
        return f"remembered {given['name']!r}" + (f", instead of: {old.text}" if old else "")

    async def forget(given: Mapping[str, Any]) -> str:
        await _own(memory, given["name"])
        return f"forgotten: {(await memory.forget(given['name'], by='model', source=source)).text}"

    return (
        _offer(
            "remember",
            "Keeps a fact for later conversations.",
            remember,
            {"name": name, "fact": fact},
            ("name", "fact"),
            changes=True,
        ),
        _offer("forget", "Forgets a fact.", forget, {"name": name}, ("name",), changes=True),
    )


async def _own(memory: Memory[Any], name: str) -> None:
    """A model may change what a model said; what the user said is the user's."""
    if any(fact.name == name.strip(WHITE_SPACE) and fact.by == "user" for fact in await memory.facts()):
        raise BadInput(
            "the user said this, and only the user changes it", place=name, hint="use another name"
        )


def _ls(space: Workspace, path: str = ".") -> str:
    items = space.items(path)
    lines = [_line(item) for item in items[:ITEMS]]
    more = [f"… {len(items) - ITEMS:,} more"] if len(items) > ITEMS else []
    return "\n".join(lines + more) or "(empty)"


def _line(item: FolderItem) -> str:
    name = item.path.rpartition("/")[2]
    if item.why:
        return f"{name} ({item.why}: not available)"
    return f"{name}/" if item.folder else f"{name} ({item.size:,} bytes)"


def _read(space: Workspace, path: str, start: int = 1, end: int | None = None) -> str:
    text = text_in(path, space.read(path))
    lines = text.removesuffix("\n").split("\n")
    if start > len(lines) or (end is not None and end < start):
        problem = f"no lines {start} to {end or 'the end'}"
        raise BadInput(problem, place=path, hint=f"it has {len(lines):,} lines")
    wanted = lines[start - 1 : end]
    if len(wanted) > LINES or sum(map(len, wanted)) > CHARACTERS:  # a part must not pass for the whole
        problem = f"too much at once: {len(lines):,} lines, {len(text):,} characters"
        raise BadInput(problem, place=path, hint="read it in parts with start and end, or grep it")
    return "\n".join(wanted) or "(empty)"


def _grep(space: Workspace, pattern: str, path: str = ".", *, ignore_case: bool = False) -> str:
    matches = grep(space, pattern, path, ignore_case=ignore_case, most=MATCHES)
    lines = [f"{match.path}:{match.line}: {match.text[:WIDEST]}" for match in matches.found]
    notes = [f"({len(matches.notes):,} things were not searched)"] if matches.notes else []
    more = [f"(only the first {MATCHES:,} matches)"] if matches.more else []
    return "\n".join([*(lines or ["(no match)"]), *more, *notes])


def _edit(space: Workspace, path: str, old: str, new: str, *, all: bool = False) -> str:  # noqa: A002 - for models
    count = space.edit(path, old.encode(), new.encode(), every=all)
    return f"replaced in {count} place{'s' * (count != 1)}"


def _write(space: Workspace, path: str, content: str) -> str:
    data = content.encode()
    return f"{'made' if space.write(path, data) else 'replaced'}, {len(data):,} bytes"


def _mv(space: Workspace, path: str, to: str) -> str:
    space.move(path, to)
    return f"moved to {joined(steps(to))}"


def _rm(space: Workspace, path: str) -> str:
    space.remove(path)
    return "removed"


def _touch(space: Workspace, path: str) -> str:
    return "made" if space.touch(path) else "it was there already"


def _looks(
    space: Workspace,
    name: str,
    description: str,
    work: Callable[..., str],
    given: dict[str, Any],
    *needed: str,
) -> Offer:
    async def run(arguments: Mapping[str, Any]) -> str:
        return await in_thread(work, space, **arguments)

    return _offer(name, description, run, given, needed)


def _acts(
    space: Workspace,
    name: str,
    description: str,
    work: Callable[..., str],
    given: dict[str, Any],
    *needed: str,
) -> Offer:
    async def run(arguments: Mapping[str, Any]) -> str:
        return await to_thread.run_sync(partial(work, space, **arguments))  # waited for: it may have begun

    return _offer(name, description, run, given, needed, changes=True)


def _offer(
    name: str,
    description: str,
    run: Run,
    given: dict[str, Any],
    needed: tuple[str, ...],
    *,
    changes: bool = False,
) -> Offer:
    schema = {"type": "object", "properties": given, "required": list(needed), "additionalProperties": False}
    return Offer(name=name, description=description, schema=schema, run=run, changes=changes)


def _named(tools: Iterable[Offer], name: str) -> Offer:
    for tool in tools:
        if tool.name == name:
            return tool
    raise BadInput("there is no such tool", place=name[:100])


_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}


def _arguments(tool: Offer, call: ToolCall) -> dict[str, Any]:
    """The arguments of a call, if they are what the schema says; null is as good as nothing."""
    try:
        raw = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"arguments that are no JSON object: {error!s:.100}", place=call.name) from None
    known: dict[str, dict[str, Any]] = tool.schema["properties"]
    given = {name: value for name, value in raw.items() if value is not None}
    missing, strange = set(tool.schema["required"]) - set(given), set(given) - set(known)
    if missing or strange:
        problem = f"{'missing' if missing else 'unknown'}: {', '.join(sorted(missing or strange))[:100]}"
        raise BadInput(problem, place=call.name, hint=f"the arguments are {', '.join(known)}")
    for name, value in given.items():
        wanted = known[name]["type"]
        if type(value) is not _TYPES[wanted] or (type(value) is int and value < 1):
            raise BadInput(f"{value!r:.50} is no {wanted}", place=f"{call.name}.{name}")
        if isinstance(value, str) and not value.isascii():
            _sayable(value, f"{call.name}.{name}")
    return given


def _sayable(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("half of a character", place=place, hint="give whole characters") from None
