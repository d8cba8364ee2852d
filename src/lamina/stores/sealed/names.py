"""The names that conversations have in the store within, and the places of their cards.

Names are hashed with a key of the store, unless the store was made with plain names. A name with a NUL is
lamina's own (the index of workspaces), and always hashed. This module reads nothing.
"""

from __future__ import annotations

import base64

from lamina.errors import BadInput
from lamina.stores.port import RESERVED, OwnName, Where, Within
from lamina.stores.sealed.cipher import Cipher, frame_fields, mac

HASHED = "hashed"
PLAIN = "plain"
MOST_NAMES = 4096
"""Names that are remembered, so that they need not be hashed again."""


class SealedNames:
    """The names of one store. `key` comes from its root secret."""

    def __init__(self, key: bytes, store: bytes, mode: str) -> None:
        self._key = key
        self._store = store
        self._mode = mode
        self._inner: dict[Where, Where] = {}

    def inner(self, where: Where) -> Where:
        """Where the records of a conversation are stored."""
        if where not in self._inner:
            if len(self._inner) > MOST_NAMES:
                self._inner.clear()
            workspace = self.inner_workspace(where.workspace)
            self._inner[where] = Where(workspace, self._inner_conversation(where))
        return self._inner[where]

    def inner_workspace(self, workspace: str) -> Within:
        """The name under which the inner store keeps a workspace: hashed, unless names stay plain."""
        if not self._is_plain(workspace):
            return Within(self._hashed_workspace(workspace))
        if workspace.startswith(RESERVED):  # the names of cards, which are never sealed themselves
            hint = f"names that begin with {RESERVED!r} are lamina's own"
            raise BadInput(f"{workspace!r}", place="workspace", hint=hint)
        return Within(workspace)

    def card_workspace(self, workspace: str) -> OwnName:
        return OwnName(f"{RESERVED}.{self._hashed_workspace(workspace)}")

    def card_place(self, where: Where) -> Where:
        return Where(self.card_workspace(where.workspace), self._inner_conversation(where))

    def seal(self, where: Where) -> bytes:
        """The name of a conversation, encrypted, as it is on its card."""
        return Cipher(self._key).seal(where.conversation.encode(), self._bound_to(where.workspace))

    def open(self, workspace: str, sealed_name: bytes) -> str:
        """The name of a conversation from its card; raises NotSealedHere if it is not what was written."""
        return Cipher(self._key).open(sealed_name, self._bound_to(workspace)).decode()

    def _is_plain(self, workspace: str) -> bool:
        return self._mode == PLAIN and "\0" not in workspace

    def _hashed_workspace(self, workspace: str) -> str:
        return _word(mac(self._key, "workspace", workspace))

    def _inner_conversation(self, where: Where) -> str:
        """The name under which the inner store keeps a conversation. Equal names differ by workspace."""
        if self._is_plain(where.workspace):
            return where.conversation
        return _word(mac(self._key, "conversation", where.workspace, where.conversation))

    def _bound_to(self, workspace: str) -> bytes:
        return frame_fields(self._store, workspace)


def _word(data: bytes) -> str:
    """Bytes as a name that every store accepts, whatever it does to letters."""
    return base64.b32encode(data[:25]).decode().lower()  # 25 bytes are 40 letters, and need no padding
