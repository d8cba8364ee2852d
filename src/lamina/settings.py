"""The user's settings: one typed TOML file, and the environment over it.

    # settings.toml
    store = "~/chats.db"        or any address of a store: sqlite+apsw:~/chats.db, files:~/chats, postgresql://...
    model = "gpt-5"
    window = 200000
    key_file = "~/.config/app/key"      the file with the key of the store, if that is sealed

Each field may be given as `LAMINA_` and its name in capitals. The file is the one that LAMINA_SETTINGS names,
else `settings.toml` in the user's folder for configuration; that one need not be there. What is not a known
field of the right type is refused with its place. It holds no keys: it names the file that has one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from lamina.errors import BadInput

VARIABLE = "LAMINA_SETTINGS"
"""Names the file, in the environment."""

FILE, STORE = "settings.toml", "conversations.db"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for every conversation that says nothing else. Empty or 0 is: not said."""

    store: str = ""
    workspace: str = ""
    model: str = ""
    dialect: str = ""
    window: Annotated[int, msgspec.Meta(ge=0)] = 0
    persona: str = ""
    """The path of a file with the default persona."""
    key_file: str = ""
    """The path of a file with the key of the store: with it the store is sealed."""

    @property
    def persona_path(self) -> Path | None:
        return Path(self.persona).expanduser() if self.persona else None

    def store_address(self, environment: Mapping[str, str] | None = None) -> str:
        """The address of the default store: the one that is named, else a file in the user's data folder."""
        if self.store:
            return self.store
        return str(data_folder(os.environ if environment is None else environment) / STORE)


def load_settings(
    path: str | Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings of a file, with those of the environment over them."""
    variables = os.environ if environment is None else environment
    named = path or variables.get(VARIABLE)
    file = Path(named).expanduser() if named else config_folder(variables) / FILE
    given = _read(file, needed=bool(named)) | _said(variables)
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        hint = f"the fields are {', '.join(Settings.__struct_fields__)}"
        raise BadInput(str(error), place=str(file), hint=hint) from None


def data_folder(environment: Mapping[str, str]) -> Path:
    """Where a program keeps its user's data on this system."""
    return _folder(environment, "XDG_DATA_HOME", "LOCALAPPDATA", Path(".local") / "share")


def config_folder(environment: Mapping[str, str]) -> Path:
    """Where a program keeps its user's settings on this system."""
    return _folder(environment, "XDG_CONFIG_HOME", "APPDATA", Path(".config"))


def _folder(environment: Mapping[str, str], free: str, windows: str, below: Path) -> Path:
    named = environment.get(free, "")
    if Path(named).is_absolute():
        return Path(named) / "lamina"
    if sys.platform == "win32" and environment.get(windows):
        return Path(environment[windows]) / "lamina"
    home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "lamina"
    return home / below / "lamina"


def _read(file: Path, *, needed: bool) -> dict[str, object]:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        if not needed:
            return {}
        raise BadInput("there is no such file", place=str(file), hint=f"check {VARIABLE}") from None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=str(file), hint="check the path") from None
    try:
        found: dict[str, object] = msgspec.toml.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadInput(str(error), place=str(file), hint="it must be TOML") from None
    return found


def _said(environment: Mapping[str, str]) -> dict[str, object]:
    names = {name: f"LAMINA_{name.upper()}" for name in Settings.__struct_fields__}
    return {name: environment[variable] for name, variable in names.items() if environment.get(variable)}
