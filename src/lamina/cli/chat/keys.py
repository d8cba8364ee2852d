"""The key of `--sealed`: made at its first use, and kept by the system or in a file of the user's own.

The package `keyring` reaches the keyring of macOS, Windows and Linux desktops. Without it, or without such a
keyring, the key is a file in the user's folder for configuration, away from the store: a copy of the one is
useless without the other. A key that is lost cannot be made again, so nothing here ever overwrites one.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from lamina.settings import Settings, config_folder, data_folder
from lamina.stores.address import import_sealed

SERVICE = "lamina"
STORE = "sealed.db"
FOLDER = "keys"
IN_KEYRING = "in the system's keyring"


class KeptKey(NamedTuple):
    """A key, and where it is kept, in words. `new`: it was made just now."""

    key: Any
    where: str
    new: bool


def sealed_address(store: str, settings: Settings) -> str:
    """The store of `--sealed`: the one that is named, else one of its own beside the user's plain store."""
    return store or settings.store or str(data_folder() / STORE)


def find_or_make_key(address: str) -> KeptKey:
    """The key of the store at this address: of its file, else of the keyring, else a new one."""
    sealing = import_sealed()
    path = key_path(address)
    if path.exists():
        return KeptKey(sealing.from_file(path), f"in {path}", new=False)
    keyring = _find_keyring()
    if keyring is None:
        return KeptKey(sealing.init_file(path), f"in {path}", new=True)
    name = _normal_address(address)
    if keyring.get_password(SERVICE, name) is None:
        return KeptKey(sealing.init_keyring(name, service=SERVICE), IN_KEYRING, new=True)
    return KeptKey(sealing.from_keyring(name, service=SERVICE), IN_KEYRING, new=False)


def describe_key(kept_key: KeptKey) -> str:
    """Where the key is; for a new one also what its loss would mean."""
    if kept_key.new:
        return (
            f"sealed with a new key, {kept_key.where}: keep a copy of it, for without it nothing can be read"
        )
    return f"sealed; the key is {kept_key.where}"


def key_path(address: str) -> Path:
    """The file of a store's key. Its name has no word of the address, which may hold a password."""
    name = hashlib.sha256(_normal_address(address).encode()).hexdigest()[:16]
    return config_folder() / FOLDER / f"{name}.key"


def _normal_address(address: str) -> str:
    """The address in one form, from whichever folder it is named."""
    if "://" in address:
        return address
    kind, colon, path = address.rpartition(":")
    return f"{kind}{colon}{Path(path).expanduser().absolute()}"


def _find_keyring() -> Any:
    """The package `keyring`, if it is installed and this system has a keyring that it can use; else None."""
    try:
        keyring = import_module("keyring")
        if keyring.get_keyring().priority < 1:  # its backends that keep nothing, or keep it in plain files
            return None
    except Exception:  # noqa: BLE001 - a keyring without a desktop fails in many ways, and a file will do
        return None
    return keyring
