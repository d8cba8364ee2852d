"""Encryption around any store.

    key = init_file("app.key")
    store = Sealed(MemoryStore(), key, create=True)

Read `store` first; `docs/encryption.md` says what it promises.
"""

from __future__ import annotations

from lamina.stores.sealed.keys import (
    Key,
    Passphrase,
    from_env,
    from_file,
    from_keyring,
    generate,
    init_file,
    init_keyring,
    raw,
)
from lamina.stores.sealed.store import Sealed

__all__ = [
    "Key",
    "Passphrase",
    "Sealed",
    "from_env",
    "from_file",
    "from_keyring",
    "generate",
    "init_file",
    "init_keyring",
    "raw",
]
