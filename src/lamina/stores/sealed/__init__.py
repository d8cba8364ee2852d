"""Encryption around any store.

    key = init_file("app.key")
    store = Sealed(MemoryStore(), key, create=True)

Read `store` first; `docs/encryption.md` says what it promises.
"""

from __future__ import annotations

from lamina.stores.sealed.keys import (
    Cost,
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
from lamina.stores.sealed.proof import Anchor, anchor, verify
from lamina.stores.sealed.rotation import (
    add_key,
    conversations,
    finish,
    make_primary,
    rekey,
    retire,
    rewrap,
    shred,
)
from lamina.stores.sealed.store import Sealed

__all__ = [
    "Anchor",
    "Cost",
    "Key",
    "Passphrase",
    "Sealed",
    "add_key",
    "anchor",
    "conversations",
    "finish",
    "from_env",
    "from_file",
    "from_keyring",
    "generate",
    "init_file",
    "init_keyring",
    "make_primary",
    "raw",
    "rekey",
    "retire",
    "rewrap",
    "shred",
    "verify",
]
