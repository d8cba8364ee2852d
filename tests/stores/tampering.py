"""Every way to change what a sealed store keeps, for the tests of encryption: a list of named mutations.

An attacker here reads and writes everything within (records, states, the header) and holds old copies;
the keys are all that is missing. Mutations are made on a copy of a memory store's content.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lamina.stores import MemoryStore, Where

Change = Callable[[MemoryStore], None]
REGIONS = {"version": 0, "id before": 8, "id": 24, "nonce": 40, "ciphertext": 45, "tag": -1}
STATE_REGIONS = {"version": 0, "count": 8, "last id": 20, "nonce": 30, "ciphertext": 37, "tag": -1}


@dataclass(frozen=True)
class Mutation:
    name: str
    change: Change


def copied(store: MemoryStore) -> MemoryStore:
    return copy.deepcopy(store)


def of_records(
    own: Where, now: MemoryStore, *, old: MemoryStore, others: dict[str, tuple[MemoryStore, Where]]
) -> Iterator[Mutation]:
    """All changes to the records and the state of one conversation, without the keys."""
    count = len(bodies(now, own))
    for seq in range(count):
        yield from _of_one(own, now, seq)
        for name, (store, where) in others.items():
            for other, body in enumerate(bodies(store, where)):
                yield Mutation(f"record {seq} from {name} {other}", put(own, seq, body))
        for other in range(count):
            if other != seq:
                yield Mutation(f"record {seq} is a copy of {other}", put(own, seq, bodies(now, own)[other]))
            if other > seq:
                yield Mutation(f"records {seq} and {other} swapped", _swap(own, seq, other))
        if seq < len(bodies(old, own)) and bodies(old, own)[seq] != bodies(now, own)[seq]:
            yield Mutation(f"record {seq} of an older copy", put(own, seq, bodies(old, own)[seq]))
        yield Mutation(f"record {seq} again at the end", _insert(own, count, bodies(now, own)[seq]))
        yield Mutation(f"record {seq} twice", _insert(own, seq, bodies(now, own)[seq]))
        yield Mutation(f"record {seq} dropped", _cut(own, seq, seq + 1))
        yield Mutation(f"cut off from record {seq}", _cut(own, seq, count))
    yield Mutation("reversed", lambda store: bodies(store, own).reverse())
    yield from _of_state(own, now, old, others)


def of_header(where: Where, now: MemoryStore) -> Iterator[Mutation]:
    """Changes to the header: flipped bits all over, cut off, emptied, removed."""
    state = now._conversations[where].state  # noqa: SLF001 - the attacker sees everything
    for at in range(0, len(state), 7):
        yield Mutation(f"header: bit flipped at {at}", _state(where, _flipped(state, at)))
    yield Mutation("header: cut in half", _state(where, state[: len(state) // 2]))
    yield Mutation("header: emptied", _state(where, b"{}"))
    yield Mutation("header: removed", lambda store: _forget(store, where))


def bodies(store: MemoryStore, where: Where) -> list[bytes]:
    return store._conversations[where].bodies  # noqa: SLF001 - the attacker sees everything


def set_back(where: Where, old: MemoryStore, *, records: bool, state: bool) -> Change:
    """Records or state of an older copy beside the other of today."""

    def change(store: MemoryStore) -> None:
        if records:
            bodies(store, where)[:] = bodies(old, where)
        if state:
            store._conversations[where].state = old._conversations[where].state  # noqa: SLF001

    return change


def _of_one(own: Where, now: MemoryStore, seq: int) -> Iterator[Mutation]:
    body = bodies(now, own)[seq]
    for region, at in REGIONS.items():
        for bit in (0, 7):
            yield Mutation(f"record {seq}: bit {bit} of {region}", put(own, seq, _flipped(body, at, bit)))
    for name, plain in {"json": b'{"v":1,"segment":{}}', "nothing": b"", "zeros": bytes(len(body))}.items():
        yield Mutation(f"record {seq} is {name}", put(own, seq, plain))
    for name, changed in {"cut": body[:-1], "longer": body + b"\0", "headless": body[1:]}.items():
        yield Mutation(f"record {seq} {name}", put(own, seq, changed))


def _of_state(
    own: Where, now: MemoryStore, old: MemoryStore, others: dict[str, tuple[MemoryStore, Where]]
) -> Iterator[Mutation]:
    state = now._conversations[own].state  # noqa: SLF001
    for region, at in STATE_REGIONS.items():
        for bit in (0, 7):
            yield Mutation(f"state: bit {bit} of {region}", _state(own, _flipped(state, at, bit)))
    for name, plain in {"json": b'{"version":1}', "nothing": b"", "zeros": bytes(len(state))}.items():
        yield Mutation(f"state is {name}", _state(own, plain))
    for name, (store, where) in others.items():
        yield Mutation(f"state from {name}", _state(own, store._conversations[where].state))  # noqa: SLF001
    yield Mutation("old state, records of today", set_back(own, old, records=False, state=True))
    yield Mutation("old records, state of today", set_back(own, old, records=True, state=False))


def put(where: Where, seq: int, body: bytes) -> Change:
    return lambda store: bodies(store, where).__setitem__(seq, body)


def _insert(where: Where, seq: int, body: bytes) -> Change:
    return lambda store: bodies(store, where).insert(seq, body)


def _cut(where: Where, start: int, end: int) -> Change:
    return lambda store: bodies(store, where).__delitem__(slice(start, end))


def _swap(where: Where, one: int, other: int) -> Change:
    def change(store: MemoryStore) -> None:
        records = bodies(store, where)
        records[one], records[other] = records[other], records[one]

    return change


def _state(where: Where, state: bytes) -> Change:
    def change(store: MemoryStore) -> None:
        store._conversations[where].state = state  # noqa: SLF001

    return change


def _forget(store: MemoryStore, where: Where) -> None:
    del store._conversations[where]  # noqa: SLF001


def _flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)
