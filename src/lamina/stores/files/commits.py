"""Writes to the folder of a conversation: a group of files is there wholly or not at all.

An append writes three things in this order: the group, which names its records, so that whoever comes after a
crash knows what to remove; then the records; and last the head. Replacing that one file is the commit.

`replace` first names its files in `.begun`. It writes them next to the old ones, commits a head that lists
them, and then moves them over the old ones. Whoever comes after a crash finishes that. Each step is on the
disk before the next one begins.

A file is only ever removed if a group, a head or `.begun` names it, never because of how its name looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace as replace_fields

from lamina.stores.checked import NewGroup, Replacement
from lamina.stores.files.conversation_folder import ConversationFolder
from lamina.stores.files.disk import (
    BEGUN,
    HEAD,
    NEW_SUFFIX,
    VERSION,
    AppendedGroup,
    HeadFile,
    IdempotencyEntry,
    PlannedFiles,
    RecordFile,
    body_digest,
    encode_body,
    group_name,
    make_folder,
    move_file,
    once_name,
    record_file_name,
    remove_file,
    rename_record_file,
    write_file,
)
from lamina.stores.port import Once, StoredHead, Where
from lamina.stores.syncing import sync_folder


def append_group(conversation: ConversationFolder, group: NewGroup, *, at: datetime) -> StoredHead:
    """Append a group of records; `at` is the time in the names of its files.

    The group is written beside what is there. It counts from the moment at which the new head is in place,
    and until then every reader sees the conversation as it was.
    """
    _recover(conversation)
    bodies = group.records
    once = group.once
    if once is not None:
        repeated = conversation.find_repeated(once)
        if repeated is not None:
            return repeated
    head = group.head_after(conversation.head)
    if conversation.head_file is None:
        make_folder(conversation.folder.parent)
        make_folder(conversation.folder)
    previous = conversation.head_file or _empty_head(conversation.where)
    head_file = replace_fields(previous, count=head.count, state=head.state)
    # Whoever sets a state alone needs no group: the state is in the head.
    if bodies or once is not None:
        head_file = replace_fields(head_file, groups=previous.groups + 1)
        names = [record_file_name(seq, body, at) for seq, body in enumerate(bodies, previous.count)]
        _write_group(conversation, previous, dict(zip(names, bodies, strict=True)), once)
    _commit(conversation, head_file)
    return head


def replace_records(conversation: ConversationFolder, replacement: Replacement) -> StoredHead:
    _recover(conversation)
    if conversation.head_file is None:
        replacement.raise_missing()
    head = replacement.head_after(conversation.head)
    files, drops = _replacement_files(conversation, replacement.bodies)
    head_file = replace_fields(conversation.head_file, state=head.state, moves=tuple(files), drops=drops)
    _replace_files(conversation, files, head_file)
    return head


def _empty_head(where: Where) -> HeadFile:
    return HeadFile(v=VERSION, workspace=str(where.workspace), conversation=where.conversation)


def _recover(conversation: ConversationFolder) -> None:
    """Finish a replacement that was committed, and remove what an interrupted write has left.

    Whatever is named in a committed head is finished, and whatever is not is removed. Both can be interrupted
    and done again.
    """
    head_file = conversation.head_file
    if head_file is not None and head_file.moves:
        _move_files(conversation, head_file)
    planned = conversation.load(BEGUN, PlannedFiles)
    if planned is not None:
        for name in planned.names:
            remove_file(conversation.folder, f"{name}{NEW_SUFFIX}")
        sync_folder(conversation.folder)
    remove_file(conversation.folder, BEGUN)
    number = conversation.group_count
    group = conversation.load(group_name(number), AppendedGroup)
    if group is not None:
        _remove_uncommitted(conversation, number, group)


def _remove_uncommitted(conversation: ConversationFolder, number: int, group: AppendedGroup) -> None:
    """Remove what an append has written that was never committed. The group, which names it, goes last.

    A key that an earlier group has used stays: only the entry of this very append is removed.
    """
    for file in group.files:
        remove_file(conversation.folder, file.name)
    if group.once is not None:
        name = once_name(group.once)
        entry = conversation.load(name, IdempotencyEntry)
        if entry is None or entry.group >= number:
            remove_file(conversation.folder, name)
    sync_folder(conversation.folder)
    remove_file(conversation.folder, group_name(number))


def _write_group(
    conversation: ConversationFolder, previous: HeadFile, bodies: Mapping[str, bytes], once: Once | None
) -> None:
    """Write a group, its records by the names of their files, and its idempotency key; commit nothing.

    The group with the names of its files comes first: if the write is interrupted, it tells what to remove.
    """
    files = tuple(RecordFile(name, body_digest(body)) for name, body in bodies.items())
    key = None
    if once is not None:
        key = once.key
    group = AppendedGroup(first=previous.count, files=files, once=key)
    _write_hidden_file(conversation, group_name(previous.groups), group)
    sync_folder(conversation.folder)
    for name, body in bodies.items():
        write_file(conversation.folder, name, encode_body(body))
    if once is not None:
        count = previous.count + len(bodies)
        entry = IdempotencyEntry(digest=once.digest, group=previous.groups, count=count)
        _write_hidden_file(conversation, once_name(once.key), entry)
    sync_folder(conversation.folder)


def _replacement_files(
    conversation: ConversationFolder, bodies: Mapping[int, bytes]
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files that a replacement writes, groups included, and the names of the files that it removes.

    A record's file gets another name if its new body has another role.
    """
    new_files: dict[str, bytes] = {}
    drops: list[str] = []
    files_by_group: dict[int, list[RecordFile]] = {}
    for seq, body in bodies.items():
        number = conversation.group_number(seq)
        group = conversation.group(number)
        group_files = files_by_group.setdefault(number, list(group.files))
        index = seq - group.first
        old_name = group_files[index].name
        new_name = rename_record_file(old_name, seq, body)
        group_files[index] = RecordFile(new_name, body_digest(body))
        new_files[new_name] = encode_body(body)
        if new_name != old_name:
            drops.append(old_name)
    for number, group_files in files_by_group.items():
        group = replace_fields(conversation.group(number), files=tuple(group_files))
        name = group_name(number)
        new_files[name] = conversation.encode_with_checksum(name, group)
    return new_files, tuple(drops)


def _replace_files(conversation: ConversationFolder, files: Mapping[str, bytes], head_file: HeadFile) -> None:
    """Replace files by new ones of the same names, all of them or none; `head_file` commits that."""
    _write_hidden_file(conversation, BEGUN, PlannedFiles(names=tuple(files)))
    sync_folder(conversation.folder)
    for name, content in files.items():
        write_file(conversation.folder, f"{name}{NEW_SUFFIX}", content)
    sync_folder(conversation.folder)
    _commit(conversation, head_file)
    _move_files(conversation, head_file)


def _move_files(conversation: ConversationFolder, head_file: HeadFile) -> None:
    """Move the files of a committed replacement over the old ones. Some may have been moved before."""
    for name in head_file.moves:
        move_file(conversation.folder, f"{name}{NEW_SUFFIX}", name)
    for name in head_file.drops:
        remove_file(conversation.folder, name)
    sync_folder(conversation.folder)
    _commit(conversation, replace_fields(head_file, moves=(), drops=()))
    remove_file(conversation.folder, BEGUN)


def _commit(conversation: ConversationFolder, head_file: HeadFile) -> None:
    """Make a group count: the head names it from now on. Before this, nobody reads its files."""
    _write_hidden_file(conversation, HEAD, head_file)
    sync_folder(conversation.folder)
    conversation.use_head(head_file)


def _write_hidden_file(conversation: ConversationFolder, name: str, value: msgspec.Struct) -> None:
    write_file(conversation.folder, name, conversation.encode_with_checksum(name, value))
