"""The user's settings: one typed TOML file.

    # settings.toml
    store = "~/chats.db"        or any address of a store: files:~/chats, postgresql://...
    model = "gpt-5"
    key_file = "~/.config/app/key"      the file with the key of the store, if that is sealed

    [policy]                    how requests are fitted: the fields of `lamina.Policy` that are plain data
    budget = 200000

The file is the one that LAMINA_SETTINGS names, else `settings.toml` in the user's folder for configuration,
which need not exist. LAMINA_STORE replaces its store. An unknown field, or one of the wrong type, raises
`BadInput` with the line of the file. The file holds no keys: it names the file that has one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lamina.errors import BadInput

__all__ = ["Settings", "load_settings"]

VARIABLE = "LAMINA_SETTINGS"
"""Names the file, in the environment."""

STORE_VARIABLE = "LAMINA_STORE"
"""Names the store, in the environment."""

FILE, STORE = "settings.toml", "conversations.db"
POLICY = "policy"
"""The table of the settings that is a policy."""

_HEADER = re.compile(r"[ \t]*\[{1,2}([^\[\]]+)\]")
"""The header of a table: `[policy]`, `[upstreams.claude]`, `[[tokens]]`."""

_LINE = re.compile(r"at line ([0-9]+)")
"""How the parser says where a text is not TOML."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for every conversation that says nothing else. Empty and 0 mean that it is not set."""

    store: str = ""
    workspace: str = ""
    model: str = ""
    dialect: str = ""
    policy: dict[str, Any] = {}
    """How requests are fitted, as `lamina.fitting.policy.load_policy` reads it."""
    persona: str = ""
    """The path of a file with the default persona."""
    key_file: str = ""
    """The path of a file with the key of the store: with it the store is sealed."""

    @property
    def persona_path(self) -> Path | None:
        """The file with the default persona, if one is set."""
        if not self.persona:
            return None
        return Path(self.persona).expanduser()

    def store_address(self) -> str:
        """The address of the default store: the one that is named, else a file in the user's data folder."""
        if self.store:
            return self.store
        return str(data_folder() / STORE)


def load_settings(
    path: str | Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings of a file. The environment may name another store."""
    if environment is None:
        environment = os.environ
    file = find_settings_file(path, environment)
    text = _read_file(file, must_exist=bool(path or environment.get(VARIABLE)))
    settings = _convert(decode_toml(text, file), text, file)
    store = environment.get(STORE_VARIABLE)
    if store:
        return msgspec.structs.replace(settings, store=store)
    return settings


def find_settings_file(path: str | Path | None, environment: Mapping[str, str]) -> Path:
    """The file of the settings, which need not exist."""
    named_file = path or environment.get(VARIABLE)
    if named_file:
        return Path(named_file).expanduser()
    return config_folder() / FILE


def find_line(text: str, name: str) -> int:
    """The line of a TOML text that sets `name`, such as `policy.budget`, from 1; 0 if none does.

    An inline table sets what is in it, and the header of a table sets the table: `[[tokens]]` is `tokens`.
    """
    table = ""
    line_of_parent = 0
    for number, line in enumerate(text.split("\n"), 1):
        header = _HEADER.match(line)
        if header:
            table = header[1].strip(" \t").replace('"', "")
            if table == name:
                return number
            continue
        key = line.partition("=")[0].strip(" \t\"'")
        if "=" not in line or key.startswith("#"):
            continue
        full_name = f"{table}.{key}".lstrip(".")
        # `budget.window = 9` sets a part of `budget`.
        if full_name == name or full_name.startswith(f"{name}."):
            return number
        if name.startswith(f"{full_name}."):
            line_of_parent = number
    return line_of_parent


def find_error_line(text: str, message: str, *, table: str = "") -> int:
    """The line of a TOML text that a message of msgspec is about: of a field, or of its table; else 0."""
    names = [part for part in (table, *_name_field(message).split(".")) if part]
    for end in range(len(names), 0, -1):
        line = find_line(text, ".".join(names[:end]))
        if line:
            return line
    return 0


def decode_toml(text: str, file: Path) -> dict[str, object]:
    """The values of a TOML text. Raises BadInput with the line where it is not TOML."""
    try:
        return msgspec.toml.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        line = _LINE.search(str(error))
        place = str(file)
        if line:
            place = f"{file}:{line[1]}"
        raise BadInput(str(error), place=place, hint="it must be TOML") from None


def _name_field(message: str) -> str:
    """The field that a message of msgspec is about, such as `policy.budget`; "" if it names none.

    The message ends with a path ("… - at `$.policy.budget`") or names the field ("unknown field `prot`"), or
    both: the path is that of the table then.
    """
    names = re.findall(r"`([^`]*)`", message)
    if not names:
        return ""
    name = str(names[-1])
    unknown = re.search(r"unknown field `([^`]*)` - at", message)
    if unknown:
        name += f".{unknown[1]}"
    return re.sub(r"\[[^\[\]]*\]", "", name.lstrip("$.")).strip(".")


def _convert(values: dict[str, object], text: str, file: Path) -> Settings:
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        place = f"{file}:{find_error_line(text, str(error)) or 1}"
        hint = f"the fields are {', '.join(Settings.__struct_fields__)}"
        raise BadInput(str(error), place=place, hint=hint) from None


def data_folder() -> Path:
    """Where a program keeps its user's data on this system."""
    import platformdirs  # noqa: PLC0415 - slow to import, and seldom needed

    return platformdirs.user_data_path("lamina", appauthor=False)


def config_folder() -> Path:
    """Where a program keeps its user's settings on this system."""
    import platformdirs  # noqa: PLC0415 - slow to import, and seldom needed

    return platformdirs.user_config_path("lamina", appauthor=False, roaming=True)


def _read_file(file: Path, *, must_exist: bool) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        if not must_exist:
            return ""
        raise BadInput("there is no such file", place=str(file), hint=f"check {VARIABLE}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot be read: {reason}", place=str(file), hint="check the path") from None
