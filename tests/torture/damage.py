"""A disk that gives back other bytes than were written to it.

    damage(open_store, 500)      flipped bits, other bytes, blocks of zeros, swapped blocks, files cut short

The store is plain: no key helps it. After each blow, on a copy, everything is read and listed, every
idempotency key is sent again, and one more group is appended. Each of these gives what is right, or raises an
error of lamina's. What is silently other is a violation, and so is any other error.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from secrets import token_hex
from tempfile import TemporaryDirectory

import anyio

from lamina.errors import LaminaError
from lamina.stores import ListedConversation, Once, Record, RecordPage, Store, StoredHead, Where
from tests.torture.outcome import Outcome, Tally
from tests.torture.telling import OpenStore

SECONDS = 60
"""A store that takes longer to be read goes round in circles."""

PAGE = 4096
GROUPS = 5


class Kept:
    """What a store holds: pages and keys by conversation, and the lists of its workspaces."""

    def __init__(self, dice: Random) -> None:
        own = token_hex(6)
        names = [("a", "first"), ("a", "second"), ("a", "ünï/cødé"), ("b", "first"), ("b", "only state")]
        self.pages: dict[Where, RecordPage] = {}
        self.groups: dict[Where, list[tuple[list[bytes], bytes, Once, int]]] = {}
        for space, name in names:
            groups = 1 if name == "only state" else GROUPS
            self._fill(Where(f"damage-{own}-{space}", name), groups, dice)

    def _fill(self, where: Where, groups: int, dice: Random) -> None:
        bodies: list[bytes] = []
        self.groups[where] = []
        for number in range(groups):
            sizes = [] if groups == 1 else [dice.choice((3, 200, 900, 9_000)) for _ in range(2)]
            group = [_text(dice, size) for size in sizes]
            bodies += group
            once = Once(key=f"turn-{number}", digest=dice.randbytes(16))
            state = _text(dice, dice.choice((30, 500, 6_000)))
            self.groups[where].append((group, state, once, len(bodies)))
        records = tuple(Record(seq=seq, body=body) for seq, body in enumerate(bodies))
        self.pages[where] = RecordPage(records=records, head=StoredHead(count=len(bodies), state=state))

    @property
    def lists(self) -> Mapping[str, Sequence[ListedConversation]]:
        found: dict[str, list[ListedConversation]] = {where.workspace: [] for where in self.pages}
        for where, page in sorted(self.pages.items()):
            found[where.workspace].append(
                ListedConversation(conversation=where.conversation, count=page.head.count)
            )
        return found

    async def write(self, store: Store) -> None:
        for where, groups in self.groups.items():
            for group, state, once, _ in groups:
                await store.append(where, group, once=once, state=state)


def _text(dice: Random, size: int) -> bytes:
    """Half of what is kept is text, half is not."""
    if dice.random() < 0.5:
        return dice.randbytes(size)
    return bytes(dice.choices(b'abcdefghij 0123456789{}":,', k=size))


def damage(open_store: OpenStore, count: int, *, seed: int = 0, within: str | None = None) -> Outcome:
    """So many blows, of every sort in turn, each to a store that is whole."""
    tally, dice = Tally("damage"), Random(seed)  # noqa: S311
    kept = Kept(dice)
    with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
        live, copy = Path(folder) / "live", Path(folder) / "copy"
        live.mkdir()
        anyio.run(_written, open_store, str(live), kept)
        for number in range(count):
            shutil.copytree(live, copy)
            sort, blow = list(BLOWS.items())[number % len(BLOWS)]
            place = blow(copy, dice)
            tally.tries += 1
            try:
                tally.note(anyio.run(_judged, open_store, str(copy), kept))
            except Exception as error:  # noqa: BLE001 - whatever it is, a caller could not expect it
                tally.broken(f"{sort}: {place}", error)
            shutil.rmtree(copy)
    return tally.outcome()


async def _written(open_store: OpenStore, folder: str, kept: Kept) -> None:
    async with open_store(folder) as store:
        await kept.write(store)


async def _judged(open_store: OpenStore, folder: str, kept: Kept) -> str:
    """Whether the damage was noticed, or had no effect; raises if something else was given than is right."""
    detected = False
    with anyio.fail_after(SECONDS):
        try:
            async with open_store(folder) as store:
                for look in (_read, _list, _repeat, _append):
                    detected |= await look(store, kept)
        except LaminaError:
            detected = True
    return "detected" if detected else "without effect"


async def _read(store: Store, kept: Kept) -> bool:
    detected = False
    for where, page in kept.pages.items():
        try:
            found = await store.read(where)
            last = await store.read(where, last=3)
        except LaminaError:
            detected = True
            continue
        assert found == page, f"{where.conversation}: {_difference(found, page)}"
        assert last.records == page.records[-3:], f"{where.conversation}: the last records are others"
    return detected


async def _list(store: Store, kept: Kept) -> bool:
    detected = False
    for workspace, listed in kept.lists.items():
        try:
            found = await store.list(workspace)
        except LaminaError:
            detected = True
            continue
        assert list(found) == list(listed), f"{len(found)} of {len(listed)} are listed, or with other counts"
    return detected


async def _repeat(store: Store, kept: Kept) -> bool:
    """As a session repeats: with the number of records that it had read."""
    detected = False
    for where, groups in kept.groups.items():
        for group, state, once, count in groups:
            try:
                head = await store.append(where, group, expect=count - len(group), once=once, state=state)
            except LaminaError:
                detected = True
                continue
            right = StoredHead(count=count, state=kept.pages[where].head.state)
            assert head == right, f"{where.conversation}: a repeated group is answered with {head.count}"
    return detected


async def _append(store: Store, kept: Kept) -> bool:
    """What is acknowledged now is there, behind everything that was."""
    detected = False
    for where, page in kept.pages.items():
        try:
            await store.append(where, [b"later"], expect=page.head.count)
            found = await store.read(where)
        except LaminaError:
            detected = True
            continue
        later = Record(seq=page.head.count, body=b"later")
        right = RecordPage(
            records=(*page.records, later), head=StoredHead(count=later.seq + 1, state=page.head.state)
        )
        assert found == right, f"{where.conversation}: after an append, {_difference(found, right)}"
    return detected


def _difference(found: RecordPage, right: RecordPage) -> str:
    if found.head != right.head:
        return f"{found.head.count} records instead of {right.head.count}, or another state"
    if len(found.records) != len(right.records):
        return f"{len(found.records)} records are given, the head says {right.head.count}"
    return "a record is other than it was written"


Blow = Callable[[Path, Random], str]


def _file(folder: Path, dice: Random) -> Path:
    """One of the files that hold something, larger ones more often."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return dice.choices(files, [path.stat().st_size for path in files])[0]


def _changed(folder: Path, dice: Random, change: Callable[[bytearray, int], int]) -> str:
    """Change one file at one place; `change` says how far."""
    file = _file(folder, dice)
    content = bytearray(file.read_bytes())
    at = dice.randrange(len(content))
    size = change(content, at)
    file.write_bytes(content)
    return f"{file.name} at byte {at}, {size} bytes"


def _flip_a_bit(folder: Path, dice: Random) -> str:
    def change(content: bytearray, at: int) -> int:
        content[at] ^= 1 << dice.randrange(8)
        return 1

    return _changed(folder, dice, change)


def _other_bytes(folder: Path, dice: Random) -> str:
    def change(content: bytearray, at: int) -> int:
        size = min(dice.choice((1, 2, 16, 512)), len(content) - at)
        content[at : at + size] = dice.randbytes(size)
        return size

    return _changed(folder, dice, change)


def _other_text(folder: Path, dice: Random) -> str:
    """One character for another of its kind, as a wrong byte that is still valid text."""

    def change(content: bytearray, at: int) -> int:
        content[at] = dice.choice(b"0123456789" if 48 <= content[at] < 58 else b"abcdefghijklmnopqrstuvwxyz")
        return 1

    return _changed(folder, dice, change)


def _zeros(folder: Path, dice: Random) -> str:
    def change(content: bytearray, at: int) -> int:
        size = dice.choice((4, 64, 512, PAGE))
        start = at // size * size
        end = min(start + size, len(content))
        content[start:end] = bytes(end - start)
        return end - start

    return _changed(folder, dice, change)


def _cut_short(folder: Path, dice: Random) -> str:
    file = _file(folder, dice)
    content = file.read_bytes()
    size = dice.choice((0, dice.randrange(len(content)), len(content) - 1, len(content) // PAGE // 2 * PAGE))
    file.write_bytes(content[:size])
    return f"{file.name} cut to {size} of {len(content)} bytes"


def _swapped(folder: Path, dice: Random) -> str:
    """Two blocks of one file, or all of two files where they are small."""
    file = _file(folder, dice)
    content = bytearray(file.read_bytes())
    if len(content) < 2 * PAGE:
        other = _file(folder, dice)
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return f"{file.name} and {other.name}"
    one, two = (at * PAGE for at in dice.sample(range(len(content) // PAGE), 2))
    content[one : one + PAGE], content[two : two + PAGE] = (
        content[two : two + PAGE],
        content[one : one + PAGE],
    )
    file.write_bytes(content)
    return f"{file.name}: the blocks at {one} and {two}"


def _repeated(folder: Path, dice: Random) -> str:
    """A block, or a whole small file, that stands in the place of another, too."""
    file = _file(folder, dice)
    content = bytearray(file.read_bytes())
    if len(content) < 2 * PAGE:
        other = _file(folder, dice)
        other.write_bytes(content)
        return f"{file.name} also in the place of {other.name}"
    one, two = (at * PAGE for at in dice.sample(range(len(content) // PAGE), 2))
    content[two : two + PAGE] = content[one : one + PAGE]
    file.write_bytes(content)
    return f"{file.name}: the block at {one} also at {two}"


BLOWS: Mapping[str, Blow] = {
    "a flipped bit": _flip_a_bit,
    "other bytes": _other_bytes,
    "other text": _other_text,
    "zeros": _zeros,
    "cut short": _cut_short,
    "swapped": _swapped,
    "repeated": _repeated,
}
