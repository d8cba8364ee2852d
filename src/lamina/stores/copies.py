"""Copies conversations from one store into another: from plain to sealed, from files to a database, or back.

    copied = await copy_conversations(plain, sealed, "team")

Each conversation is copied with its records and its state as one group, so the other store has all of it or
nothing. The idempotency keys are not copied: no store can list them. Nothing is removed from the first store.
"""

from __future__ import annotations

from lamina.errors import BadInput, Damaged
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store, Where


async def copy_conversations(source: Store, target: Store, workspace: str) -> dict[str, int]:
    """Copy every conversation of a workspace, and return how many records each has.

    Nothing is overwritten: if the other store has one of the names, this raises BadInput and copies nothing.
    """
    names = [listed.conversation async for listed in every_conversation(source, workspace)]
    existing_names = {listed.conversation async for listed in every_conversation(target, workspace)}
    for name in names:
        if name in existing_names:
            hint = "delete it there, or copy into a new store"
            raise BadInput(f"there is a conversation {name!r} already", place="copy", hint=hint)
    counts: dict[str, int] = {}
    for name in names:
        where = Where(workspace, name)
        page = await source.read(where)
        bodies = [record.body for record in page.records]
        await target.append(where, bodies, expect=0, state=page.head.state)
        # Whoever copies often removes the old store next, so the copy is read back first.
        if await target.read(where) != page:
            raise Damaged("the copy is not what was copied", conversation=name)
        counts[name] = page.head.count
    return counts
