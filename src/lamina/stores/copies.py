"""Copies conversations from one store into another: from plain to sealed, from files to a database, or back.

    copied = await copy_conversations(plain, sealed, "team")

Each goes over with its records and its state in one group, so that one which is there is there wholly. The
idempotency keys stay behind: no store can list them. Nothing is removed from the first store.
"""

from __future__ import annotations

from lamina.errors import BadInput, Damaged
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store, Where


async def copy_conversations(source: Store, target: Store, workspace: str) -> dict[str, int]:
    """Copies every conversation of a workspace, and says how many records each has.

    Nothing is written over: BadInput, before anything is copied, if the other store has one of the names.
    """
    names = [each.conversation async for each in every_conversation(source, workspace)]
    there = {each.conversation async for each in every_conversation(target, workspace)}
    for name in names:
        if name in there:
            hint = "delete it there, or copy into a new store"
            raise BadInput(f"there is a conversation {name!r} already", place="copy", hint=hint)
    copied: dict[str, int] = {}
    for name in names:
        where = Where(workspace, name)
        page = await source.read(where)
        bodies = [record.body for record in page.records]
        await target.append(where, bodies, expect=0, state=page.head.state)
        if await target.read(where) != page:
            raise Damaged("the copy is not what was copied", conversation=name)
        copied[name] = page.head.count
    return copied
