"""The user's settings: one typed TOML file, and the environment over it.

    # settings.toml
    store = "~/chats.db"        or any address of a store: sqlite+apsw:~/chats.db, files:~/chats, postgresql://...
    model = "gpt-5"
    window = 200000
    key_file = "~/.config/app/key"      the file with the key of the store, if that is sealed

Each field may also be set in the environment, as `LAMINA_` and its name in capitals. The file is the one that
LAMINA_SETTINGS names, else `settings.toml` in the user's folder for configuration, which need not exist. An
unknown field, or one of the wrong type, raises `BadInput`. The file holds no keys: it names the file that has
one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from lamina.errors import BadInput

VARIABLE = "LAMINA_SETTINGS"
"""Names the file, in the environment."""

FILE, STORE = "settings.toml", "conversations.db"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for every conversation that says nothing else. Empty and 0 mean that it is not set."""

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
    """The settings of a file, with those of the environment over them."""
    if environment is None:
        environment = os.environ
    named_file = path or environment.get(VARIABLE)
    file = Path(named_file).expanduser() if named_file else config_folder() / FILE
    values = _read_file(file, must_exist=bool(named_file)) | _read_environment(environment)
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        hint = f"the fields are {', '.join(Settings.__struct_fields__)}"
        raise BadInput(str(error), place=str(file), hint=hint) from None


def data_folder() -> Path:
    """Where a program keeps its user's data on this system."""
    import platformdirs  # noqa: PLC0415 - slow to import, and seldom needed

    return platformdirs.user_data_path("lamina", appauthor=False)


def config_folder() -> Path:
    """Where a program keeps its user's settings on this system."""
    import platformdirs  # noqa: PLC0415 - slow to import, and seldom needed

    return platformdirs.user_config_path("lamina", appauthor=False, roaming=True)


def _read_file(file: Path, *, must_exist: bool) -> dict[str, object]:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        if not must_exist:
            return {}
        raise BadInput("there is no such file", place=str(file), hint=f"check {VARIABLE}") from None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=str(file), hint="check the path") from None
    try:
        values: dict[str, object] = msgspec.toml.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadInput(str(error), place=str(file), hint="it must be TOML") from None
    return values


def _read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """The settings that the environment has: `LAMINA_MODEL` is `model`. An empty variable is none."""
    values: dict[str, object] = {}
    for name in Settings.__struct_fields__:
        value = environment.get(f"LAMINA_{name.upper()}")
        if value:
            values[name] = value
    return values
