"""Everything that somebody with write access to a store can do to it, without its keys.

    tamper(open_store, 500)      the store is sealed, and lies: records and heads come back changed
    edits(open_store, 500)       bytes of the sealed store's files are changed

A read raises, or gives exactly what was written. An older copy of everything at once, and a conversation that
is gone as a whole, are not among the lies: from the inside they look like the past.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio
from msgspec.structs import replace

from lamina.errors import LaminaError, WrongKey
from lamina.stores import Record, RecordPage, Store, StoredHead, Where
from lamina.stores.sealed import Key, generate
from tests.torture.outcome import Outcome, Tally
from tests.torture.sealing import Between, sealing
from tests.torture.telling import OpenStore

GROUPS = 4
Lie = Callable[[RecordPage], RecordPage]


class Liar:
    """A store that answers reads of one conversation with a lie. Everything else is passed on."""

    def __init__(self, store: Store, about: Where | None = None, lie: Lie | None = None) -> None:
        self._store, self._about, self._lie = store, about, lie
        self.pages: dict[Where, RecordPage] = {}

    async def append(self, where: Where, records: Sequence[bytes], **given: Any) -> StoredHead:
        return await self._store.append(where, records, **given)

    async def read(self, where: Where, **asked: Any) -> RecordPage:
        page = await self._store.read(where, **asked)
        self.pages[where] = page
        return self._lie(page) if self._lie and where == self._about else page

    async def list(self, workspace: str, *, after: str = "", limit: int = 1000) -> Sequence[Any]:
        return await self._store.list(workspace, after=after, limit=limit)

    async def delete(self, where: Where) -> bool:
        return await self._store.delete(where)


def tamper(open_store: OpenStore, count: int, *, seed: int = 0, within: str | None = None) -> Outcome:
    """So many lies, of every sort in turn, and the wrong key."""
    tally = Tally("tampering")
    with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
        anyio.run(_tamper, open_store, folder, count, Random(seed), tally)  # noqa: S311
    return tally.outcome()


class _Case(NamedTuple):
    """A sealed conversation, what it holds, and the account of what was done to it."""

    open: OpenStore
    folder: str
    key: Key
    own: Where
    truth: RecordPage
    tally: Tally

    async def judge(self, store: Store) -> None:
        try:
            page = await store.read(self.own)
        except LaminaError:
            self.tally.note("detected")
        else:
            self.tally.note("without effect" if page == self.truth else "silent")
            assert page == self.truth, f"{page.head.count} records were read as if they were genuine"

    async def tried(self, folder: str, name: str, between: Between | None = None) -> None:
        """Open what may be there by now, and read."""
        self.tally.tries += 1
        try:
            async with sealing(self.open, self.key, between=between)(folder) as store:
                await self.judge(store)
        except LaminaError:
            self.tally.note("detected")
        except Exception as error:  # noqa: BLE001 - a caller could not expect it
            self.tally.broken(name, error)


async def _tamper(open_store: OpenStore, folder: str, count: int, dice: Random, tally: Tally) -> None:
    key, own, other = generate(), *(Where(f"tamper-{token_hex(6)}", name) for name in ("own", "other"))
    case = _Case(open_store, folder, key, own, await _filled(open_store, folder, key, own), tally)
    await _filled(open_store, folder, key, other)
    foreign = list((await _within(case, other)).values())
    pages = await _within(case, own)
    for number in range(count):
        about = sorted(pages)[number % len(pages)]
        name, lie = _lie(pages[about], foreign, dice)
        await case.tried(folder, name, lambda store: Liar(store, about, lie))  # noqa: B023 - used at once
    tally.tries += 1
    try:
        async with sealing(open_store, generate())(folder) as store:
            page = await store.read(own)
    except WrongKey:
        tally.note("detected")
    else:
        tally.violations.append(f"another key read {page.head.count} records")


async def _filled(open_store: OpenStore, folder: str, key: Key, where: Where) -> RecordPage:
    async with sealing(open_store, key)(folder) as store:
        for number in range(GROUPS):
            group = [f"{where.conversation} {number} {part}".encode() * 3 for part in range(2)]
            await store.append(where, group, state=b"state %d" % number)
        return await store.read(where)


async def _within(case: _Case, where: Where) -> Mapping[Where, RecordPage]:
    """What the store within was asked for when this conversation was read, and its answers."""
    liars: list[Liar] = []

    def between(store: Store) -> Store:
        liars.append(Liar(store))
        return liars[-1]

    async with sealing(case.open, case.key, between=between)(case.folder) as store:
        await store.read(where)
    return {asked: page for asked, page in liars[0].pages.items() if page != RecordPage()}


def _lie(page: RecordPage, foreign: Sequence[RecordPage], dice: Random) -> tuple[str, Lie]:
    """A lie about this page. One that changes nothing is not chosen."""
    lies: dict[str, Lie] = {
        "a byte of the state": lambda page: _headed(page, state=_flipped(page.head.state, dice)),
        "no state": lambda page: _headed(page, state=b""),
        "a state of another": lambda page: _headed(page, state=dice.choice(foreign).head.state),
        "another count": lambda page: _headed(page, count=page.head.count + dice.choice((-1, 1, 7))),
    }
    if page.records:
        at = dice.randrange(len(page.records))
        lies |= {
            "a byte of a record": partial(_with, at=at, change=lambda body: _flipped(body, dice)),
            "a record cut short": partial(
                _with, at=at, change=lambda body: body[: dice.randrange(len(body))]
            ),
            "a longer record": partial(_with, at=at, change=lambda body: body + dice.randbytes(3)),
            "a plain record": partial(_with, at=at, change=lambda _: b'{"v": 1, "segment": {}}'),
            "a record of another": partial(_with, at=at, change=lambda _: _any_body(foreign, dice)),
            "a record dropped": lambda page: _renumbered(page, [r for r in page.records if r.seq != at]),
            "a record twice": lambda page: _renumbered(page, [*page.records, page.records[at]]),
            "another order": lambda page: _renumbered(page, dice.sample(page.records, len(page.records))),
            "the end cut off": lambda page: _renumbered(page, page.records[:at]),
            "the end cut off, count kept": lambda page: RecordPage(records=page.records[:at], head=page.head),
        }
    name = dice.choice([name for name, lie in lies.items() if lie(page) != page])
    return name, lies[name]


def _headed(page: RecordPage, **change: Any) -> RecordPage:
    return replace(page, head=replace(page.head, **change))


def _with(page: RecordPage, *, at: int, change: Callable[[bytes], bytes]) -> RecordPage:
    records = [replace(r, body=change(r.body)) if n == at else r for n, r in enumerate(page.records)]
    return replace(page, records=tuple(records))


def _renumbered(page: RecordPage, records: Sequence[Record]) -> RecordPage:
    numbered = tuple(replace(record, seq=seq) for seq, record in enumerate(records))
    return RecordPage(records=numbered, head=replace(page.head, count=len(numbered)))


def _any_body(foreign: Sequence[RecordPage], dice: Random) -> bytes:
    return dice.choice([record.body for page in foreign for record in page.records])


def _flipped(data: bytes, dice: Random) -> bytes:
    changed = bytearray(data or b"\0")
    changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def edits(open_store: OpenStore, count: int, *, seed: int = 0, within: str | None = None) -> Outcome:
    """So many times some bytes of one of the files are others."""
    tally, dice = Tally("edited files"), Random(seed)  # noqa: S311
    with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
        live, copy = Path(folder) / "live", Path(folder) / "copy"
        live.mkdir()
        key, own = generate(), Where(f"edits-{token_hex(6)}", "own")
        truth = anyio.run(_filled, open_store, str(live), key, own)
        case = _Case(open_store, str(live), key, own, truth, tally)
        for _ in range(count):
            shutil.copytree(live, copy)
            anyio.run(case.tried, str(copy), _edited(copy, dice))
            shutil.rmtree(copy)
    return tally.outcome()


def _edited(folder: Path, dice: Random) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    file = dice.choices(files, [path.stat().st_size for path in files])[0]
    content = bytearray(file.read_bytes())
    at = dice.randrange(len(content))
    for place in range(at, min(len(content), at + dice.choice((1, 1, 16)))):
        content[place] ^= dice.randrange(1, 256)
    file.write_bytes(content)
    return f"{file.name} at byte {at}"
