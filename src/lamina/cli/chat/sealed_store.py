"""The store of `--sealed` and its key, which is made at its first use.

The key is a file in the user's folder for configuration, away from the store: a copy of the one is useless
without the other. A key that is lost cannot be made again, so nothing here ever overwrites one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from lamina.settings import Settings, config_folder, data_folder
from lamina.stores.address import import_sealed

STORE = "sealed.db"
FOLDER = "keys"


def sealed_address(store: str, settings: Settings) -> str:
    """The store of `--sealed`: the one that is named, else one of its own beside the user's plain store."""
    return store or settings.store or str(data_folder() / STORE)


def find_or_make_key(address: str) -> tuple[Any, str]:
    """The key of the store at this address, and a remark that says where it is."""
    sealing = import_sealed()
    path = key_path(address)
    if path.exists():
        return sealing.from_file(path), f"sealed; the key is in {path}"
    remark = f"sealed with a new key, in {path}: keep a copy of it, for without it nothing can be read"
    return sealing.init_file(path), remark


def key_path(address: str) -> Path:
    """The file of a store's key. Its name has no word of the address, which may hold a password."""
    if "://" not in address:
        kind, colon, path = address.rpartition(":")
        address = f"{kind}{colon}{Path(path).expanduser().absolute()}"
    return config_folder() / FOLDER / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.key"
