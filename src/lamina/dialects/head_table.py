"""Translates heads by a table for each API: one row for each field that they all have.

    HeadField("output", "options.num_predict", number_or_none)
    HeadField("choice", "tool_choice", _read_choice, _write_choice)

A row reads the value of its field into plain words, and writes a plain value back. Whatever has no plain
meaning, or no word in an API, is named in `left` and not guessed at: whoever sends the request elsewhere
learns what stays behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, get_args

import msgspec

from lamina.core.values import RequestHead
from lamina.dialects.json_values import (
    drop_default,
    drop_nulls,
    mapping_or_empty,
    text_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.port import OwnHead, PlainHead, Tool

PlainField = Literal[
    "model", "output", "temperature", "top_p", "stop", "choice", "answer", "effort", "stream", "tools"
]
"""What every head can say, by its name in `PlainHead`."""

_PLAIN_FIELDS: tuple[PlainField, ...] = ("stop", "tools", "choice", "answer", "effort", "stream")
"""What some API has no field for. All of them have a model, a limit and the two numbers of the sampler."""


def _keep(value: Any) -> Any:
    return value


class HeadField(msgspec.Struct, frozen=True):
    """One field of a head.

    `path` is its place among the parameters, `options.stop` for one inside an object. `read` gives the plain
    value, None for a value that only this API has. `write` gives the API's value, None if it has none.
    `older_path` is read too, where an API renamed the field. `means_nothing` is a value that says the same as
    no field.
    """

    plain: PlainField
    path: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = _keep
    older_path: str = ""
    means_nothing: Any = None

    def find_value(self, parameters: Mapping[str, Any]) -> Any:
        """The API's value; None if the parameters have none, or one that means nothing."""
        value = _find_value(parameters, self.path)
        if value is None:
            value = _find_value(parameters, self.older_path)
        return drop_default(value, self.means_nothing)


class HeadTable(msgspec.Struct, frozen=True, kw_only=True):
    """How one API writes a head.

    - `fields` are its rows, in the order in which a request has them.
    - `silent` are paths of parameters about sending, storing or paying. The model does not read them, so
      `left` does not name them.
    - `read_tool` gives None for a tool that has no plain meaning, since the API itself runs it.
    - `write_tool` is None for an API without tools.
    - `refuses` names what the model of a head does not take.
    - `defaults` are plain values that the API needs, for a head that has none.
    - `constants` are parameters that every translated head has.
    """

    fields: tuple[HeadField, ...]
    silent: frozenset[str] = frozenset()
    read_tool: Callable[[Mapping[str, Any]], Tool | None] = lambda _: None
    write_tool: Callable[[Tool], dict[str, Any]] | None = None
    refuses: Callable[[PlainHead], Collection[PlainField]] = lambda _: ()
    defaults: Mapping[PlainField, Any] = {}
    constants: Mapping[str, Any] = {}

    def read(self, head: RequestHead) -> PlainHead:
        """Say in plain words what tools and parameters mean. `left` names those that only this API has."""
        parameters = drop_nulls(head.parameters)
        left = self._list_untranslated(parameters)
        tools: list[Tool] = []
        for position, definition in enumerate(head.tools):
            tool = self.read_tool(definition)
            if tool is None:
                left.append(f"tools[{position}]")
            else:
                tools.append(tool)
        plain_values: dict[str, Any] = {}
        for field in self.fields:
            value = field.find_value(parameters)
            if value is None:
                continue
            plain_value = field.read(value)
            if plain_value is None:
                left.append(field.path)
            else:
                plain_values[field.plain] = plain_value
        return PlainHead(tools=tuple(tools), left=tuple(left), **plain_values)

    def write(self, plain: PlainHead) -> OwnHead:
        """Say a plain head in the words of this API. `left` names what it, or its model, cannot express."""
        values: dict[PlainField, Any] = {**self.defaults, **_list_plain_values(plain)}
        refused = [name for name in self.refuses(plain) if name in values]
        for name in refused:
            del values[name]
        left: list[str] = [*refused]
        parameters: dict[str, Any] = {}
        for field in self.fields:
            value = values.pop(field.plain, None)
            if value is None:
                continue
            own_value = field.write(value)
            if own_value is None:
                left.append(field.plain)
            else:
                _put_value(parameters, field.path, own_value)
        tools: list[dict[str, Any]] = []
        if self.write_tool is not None:
            tools = self._drop_repeated(map(self.write_tool, values.pop("tools", ())))
            if len(tools) < len(plain.tools):
                left.append("tools")
        # No row took what is still there.
        left += [name for name in _PLAIN_FIELDS if name in values]
        head = RequestHead(tools=tuple(tools), parameters={**parameters, **self.constants})
        return OwnHead(head=head, left=tuple(left))

    def _drop_repeated(self, definitions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The definitions without those that got the name of an earlier one.

        `fs.read` and `fs_read` are both `fs_read` in some APIs, which take a name once.
        """
        names: set[str] = set()
        kept: list[dict[str, Any]] = []
        for definition in definitions:
            tool = self.read_tool(definition)
            if tool is None or tool.name not in names:
                kept.append(definition)
            if tool is not None:
                names.add(tool.name)
        return kept

    def _list_untranslated(self, parameters: Mapping[str, Any]) -> list[str]:
        """The paths of parameters that mean something to the model, and that no row reads.

        `logit_bias` of Chat Completions is one, and `options.mirostat` of Ollama.
        """
        known_paths = set(self.silent)
        for field in self.fields:
            known_paths |= {field.path, field.older_path}
        outer_names = {path.partition(".")[0] for path in known_paths if "." in path}
        paths: list[str] = []
        for name, value in parameters.items():
            if name in outer_names:
                paths += [f"{name}.{inner}" for inner in drop_nulls(to_dict_or_empty(value))]
            else:
                paths.append(name)
        return [path for path in paths if path not in known_paths]


def _list_plain_values(plain: PlainHead) -> dict[PlainField, Any]:
    """What a plain head says, by name. A choice without tools says nothing."""
    values: dict[PlainField, Any] = {}
    for name in get_args(PlainField):
        value = getattr(plain, name)
        if value not in (None, "", ()):
            values[name] = value
    if not plain.tools:
        values.pop("choice", None)
    return values


def _find_value(parameters: Mapping[str, Any], path: str) -> Any:
    outer_name, _, name = path.rpartition(".")
    if outer_name:
        parameters = to_dict_or_empty(parameters.get(outer_name))
    return parameters.get(name)


def _put_value(parameters: dict[str, Any], path: str, value: Any) -> None:
    outer_name, _, name = path.rpartition(".")
    if outer_name:
        parameters = parameters.setdefault(outer_name, {})
    parameters[name] = value


def name_choice(choice: str) -> str | None:
    """The tool that a plain choice names, None if it names none: `read` in "tool:read"."""
    if choice.startswith("tool:"):
        return choice.removeprefix("tool:")
    return None


def read_function(function: Mapping[str, Any]) -> Tool | None:
    """A function as the APIs of OpenAI and of Ollama define it; None for one without a name.

    `{"name": "read", "description": "Reads a file", "parameters": {…}}` has its schema in `parameters`.
    """
    name = text_or_empty(function.get("name"))
    if not name:
        return None
    schema = dict(mapping_or_empty(function.get("parameters")))
    return Tool(name=name, description=str(function.get("description") or ""), schema=schema)


def write_function(tool: Tool, name: str) -> dict[str, Any]:
    """The definition of a function under a name that the API takes. What is empty is left out.

    `{"type": "function", "function": {"name": "now"}}` takes no arguments.
    """
    function: dict[str, Any] = {"name": name}
    if tool.description:
        function["description"] = tool.description
    if tool.schema:
        function["parameters"] = tool.schema
    return {"type": "function", "function": function}
