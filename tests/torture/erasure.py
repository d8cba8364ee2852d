"""What was deleted is gone: no byte of it in any file of the store, also if the process died meanwhile.

Looked for as it was given, and in base64. The blocks that a file system has freed are not looked into: who
must know them unreadable encrypts the disk.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from secrets import token_hex
from tempfile import TemporaryDirectory

import anyio

from lamina.stores import Once, RecordPage, Where
from tests.torture.children import Say, failure, forked
from tests.torture.outcome import Outcome, Tally
from tests.torture.telling import OpenStore

GROUPS = 12
LATEST = 0.03


def erasure(open_store: OpenStore, count: int, *, seed: int = 0, within: str | None = None) -> Outcome:
    """So many conversations are deleted; all but the first while the process is killed."""
    tally, dice = Tally("erasure"), Random(seed)  # noqa: S311
    for number in range(count):
        tally.tries += 1
        with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
            try:
                _erased(open_store, folder, dice.random() * LATEST if number else None, tally)
            except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
                tally.broken(f"deletion {tally.tries}", error)
    return tally.outcome()


def _erased(open_store: OpenStore, folder: str, killed: float | None, tally: Tally) -> None:
    gone, stays = (Where(f"erasure-{token_hex(6)}", name) for name in ("gone", "stays"))
    marks = {where: [token_hex(16) for _ in range(GROUPS)] for where in (gone, stays)}
    for where, words in marks.items():
        anyio.run(_fill, open_store, folder, where, words)
    found = sum(each in content for each in _shapes(marks[gone]) for content in _contents(folder))
    if killed is not None:

        def delete(say: Say) -> None:
            anyio.run(_delete, open_store, folder, gone)
            say("deleted")

        child = forked(delete)
        time.sleep(killed)
        child.kill()
        lines = child.said()
        assert not failure(lines), failure(lines)
        tally.note("killed in time" if not lines else "killed too late")
        page = anyio.run(_read, open_store, folder, gone)
        whole = (0, len(marks[gone]) * 2) if not lines else (0,)
        assert page.head.count in whole, f"{page.head.count} records are left of a deleted conversation"
    anyio.run(_delete, open_store, folder, gone)
    assert anyio.run(_read, open_store, folder, gone) == RecordPage(), "a deleted conversation can be read"
    left = [each for each in _shapes(marks[gone]) if any(each in content for content in _contents(folder))]
    assert not left, f"{len(left)} of {found} pieces of what was deleted are still in the files"
    kept = anyio.run(_read, open_store, folder, stays)
    assert kept.head.count == 2 * GROUPS, "another conversation was harmed"


async def _fill(open_store: OpenStore, folder: str, where: Where, words: Sequence[str]) -> None:
    async with open_store(folder) as store:
        for word in words:
            record = json.dumps({"v": 1, "segment": {"role": "user", "text": word * 40}}).encode()
            once = Once(key=f"key-{word}", digest=word.encode())
            await store.append(where, [record, word.encode()], once=once, state=word.encode() * 3)


async def _delete(open_store: OpenStore, folder: str, where: Where) -> None:
    async with open_store(folder) as store:
        await store.delete(where)


async def _read(open_store: OpenStore, folder: str, where: Where) -> RecordPage:
    async with open_store(folder) as store:
        return await store.read(where)


def _shapes(words: Sequence[str]) -> Iterator[bytes]:
    """How a word may stand in a file: as it is, and in base64 wherever it begins."""
    for word in words:
        plain = word.encode()
        yield plain
        for shift in range(3):
            coded = base64.b64encode(b"\0" * shift + plain)
            yield coded[4 if shift else 0 : -4]


def _contents(folder: str) -> list[bytes]:
    return [path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()]
