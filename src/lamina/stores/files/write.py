"""What makes a group of files all or nothing.

An append writes its group first, so that whoever comes after a crash knows what to sweep away, then the
records, and last the head: that one replacement of a file is the commit. `replace` names its files first,
too, writes them beside the old ones, commits a head that speaks of them, and then moves them over; whoever
comes after a crash finishes that. Each step lasts on the disk before the next one begins. A conversation of
an older release gets its checksums the same way, before the first write.

Nothing is ever removed that was not named in such a note: not by its look, not by its place in a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace as changed

from lamina.stores.files.disk import drop, make, move, put, settle
from lamina.stores.files.sheet import digest, renamed, sheet_name, written
from lamina.stores.files.shelf import (
    ANEW,
    HEAD,
    VERSION,
    AppendedGroup,
    Begun,
    ConversationFolder,
    HeadFile,
    IdempotencyEntry,
    Sheet,
    group_name,
    once_name,
)
from lamina.stores.memory import check_head, check_there
from lamina.stores.port import Once, StoredHead, Where

BEGUN = ".begun"
"""Names the files that a replacement is about to write."""


def append(
    shelf: ConversationFolder,
    bodies: Sequence[bytes],
    *,
    expect: int | None,
    was: bytes | None,
    once: Once | None,
    state: bytes | None,
    at: datetime,
) -> StoredHead:
    """Adds a group; `at` is the time in the names of its files."""
    _recover(shelf)
    _bring_up(shelf)
    if once is not None and (earlier := shelf.answered(once)) is not None:
        return earlier
    check_head(shelf.where, shelf.head, expect=expect, was=was)
    if shelf.kept is None:
        make(shelf.folder.parent)
        make(shelf.folder)
    kept = shelf.kept or _new(shelf.where)
    after = changed(kept, count=kept.count + len(bodies), state=kept.state if state is None else state)
    if bodies or once is not None:
        after = changed(after, groups=kept.groups + 1)
        names = [sheet_name(kept.count + n, body, at) for n, body in enumerate(bodies)]
        _write_group(shelf, kept, dict(zip(names, bodies, strict=True)), once)
    _commit(shelf, after)
    return after.head


def _new(where: Where) -> HeadFile:
    return HeadFile(v=VERSION, workspace=str(where.workspace), conversation=where.conversation)


def replace(
    shelf: ConversationFolder,
    bodies: Mapping[int, bytes],
    *,
    expect: int,
    was: bytes | None,
    state: bytes | None,
) -> StoredHead:
    """Puts other bodies in the place of some."""
    _recover(shelf)
    _bring_up(shelf)
    check_there(shelf.where, shelf.kept.head if shelf.kept else None, expect=expect, was=was)
    if shelf.kept is None:
        return StoredHead()
    files, drops = _anew(shelf, bodies)
    after = changed(shelf.kept, moves=tuple(files), drops=drops)
    if state is not None:
        after = changed(after, state=state)
    _exchange(shelf, files, after)
    return after.head


def _exchange(shelf: ConversationFolder, files: Mapping[str, bytes], after: HeadFile) -> None:
    """Puts these files in the place of others of the same names, all of them or none; `after` is the head."""
    _put(shelf, BEGUN, Begun(names=tuple(files)))
    settle(shelf.folder)
    for name, content in files.items():
        put(shelf.folder, f"{name}{ANEW}", content)
    settle(shelf.folder)
    _commit(shelf, after)
    _move_over(shelf, after)


def _bring_up(shelf: ConversationFolder) -> None:
    """Gives the hidden files of a conversation of an older release their checksums."""
    kept = shelf.kept
    if kept is None or kept.v == VERSION:
        return
    files: dict[str, bytes] = {}
    for number in range(kept.groups):
        group = shelf.group(number)
        files[group_name(number)] = shelf.summed(group_name(number), group)
        if group.once is None:
            continue
        name = once_name(group.once)
        answered = shelf.load(name, IdempotencyEntry)
        if answered is not None:
            files[name] = shelf.summed(name, answered)
    _exchange(shelf, files, changed(kept, v=VERSION, moves=tuple(files)))


def _write_group(
    shelf: ConversationFolder, kept: HeadFile, sheets: Mapping[str, bytes], once: Once | None
) -> None:
    """Everything of a group but its commit."""
    named = tuple(Sheet(name, digest(body)) for name, body in sheets.items())
    key = None if once is None else once.key
    _put(shelf, group_name(kept.groups), AppendedGroup(first=kept.count, sheets=named, once=key))
    settle(shelf.folder)
    for name, body in sheets.items():
        put(shelf.folder, name, written(body))
    if once is not None:
        answered = IdempotencyEntry(digest=once.digest, group=kept.groups, count=kept.count + len(sheets))
        _put(shelf, once_name(once.key), answered)
    settle(shelf.folder)


def _anew(shelf: ConversationFolder, bodies: Mapping[int, bytes]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files that a replacement changes, groups included, and the names that go."""
    files: dict[str, bytes] = {}
    drops: list[str] = []
    sheets: dict[int, list[Sheet]] = {}
    for seq, body in bodies.items():
        number = shelf.number(seq)
        of_group = sheets.setdefault(number, list(shelf.group(number).sheets))
        at = seq - shelf.group(number).first
        old, name = of_group[at].name, renamed(of_group[at].name, seq, body)
        of_group[at] = Sheet(name, digest(body))
        files[name] = written(body)
        drops += [old] if old != name else []
    for number, of_group in sheets.items():
        group = changed(shelf.group(number), sheets=tuple(of_group))
        files[group_name(number)] = shelf.summed(group_name(number), group)
    return files, tuple(drops)


def _commit(shelf: ConversationFolder, kept: HeadFile) -> None:
    _put(shelf, HEAD, kept)
    settle(shelf.folder)
    shelf.hold(kept)


def _recover(shelf: ConversationFolder) -> None:
    """Finishes a replacement that has happened, and sweeps away what has not."""
    kept = shelf.kept
    if kept is not None and kept.moves:
        _move_over(shelf, kept)
    begun = shelf.load(BEGUN, Begun)
    if begun is not None:
        for name in begun.names:
            drop(shelf.folder, f"{name}{ANEW}")
        settle(shelf.folder)
    drop(shelf.folder, BEGUN)
    number = kept.groups if kept else 0
    group = shelf.load(group_name(number), AppendedGroup)
    if group is not None:
        _sweep(shelf, number, group)


def _sweep(shelf: ConversationFolder, number: int, group: AppendedGroup) -> None:
    """Removes what an append has left that was never committed; what names it goes last."""
    for sheet in group.sheets:
        drop(shelf.folder, sheet.name)
    if group.once is not None:
        name = once_name(group.once)
        earlier = shelf.load(name, IdempotencyEntry)
        if earlier is None or earlier.group >= number:
            drop(shelf.folder, name)
    settle(shelf.folder)
    drop(shelf.folder, group_name(number))


def _move_over(shelf: ConversationFolder, kept: HeadFile) -> None:
    """Puts the files of a replacement where the old ones were. It may have been begun before."""
    for name in kept.moves:
        move(shelf.folder, f"{name}{ANEW}", name)
    for name in kept.drops:
        drop(shelf.folder, name)
    settle(shelf.folder)
    _commit(shelf, changed(kept, moves=(), drops=()))
    drop(shelf.folder, BEGUN)


def _put(shelf: ConversationFolder, name: str, value: msgspec.Struct) -> None:
    put(shelf.folder, name, shelf.summed(name, value))
