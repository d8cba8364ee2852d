"""A disk that loses what was not synced: the calls of a program, replayed up to a power cut.

    journal = Journal(root, calls)            what a program did below a folder, from its first call on
    journal.lay_out(cut, dice, into)          a folder as the disk may hold it if power fails at that call

The rules are those of POSIX, read against the program. What a file holds is certain once it was synced; till
then each 512 bytes of each write may be there or not. A name is certain once its folder was synced; till then
it may be the old one, and later names may be there without earlier ones. Real file systems lose less.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec

SECTOR = 512
ROOT = 0


class Create(msgspec.Struct, frozen=True):
    """A file or folder appears."""

    path: str
    folder: bool = False


class Write(msgspec.Struct, frozen=True):
    path: str
    at: int
    data: bytes


class Truncate(msgspec.Struct, frozen=True):
    path: str
    size: int


class Sync(msgspec.Struct, frozen=True):
    path: str


class Rename(msgspec.Struct, frozen=True):
    path: str
    to: str


class Remove(msgspec.Struct, frozen=True):
    path: str


class Said(msgspec.Struct, frozen=True):
    """The program told somebody: from here on a turn is acknowledged."""

    number: int


Call = Create | Write | Truncate | Sync | Rename | Remove | Said


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """A call on things instead of names. `thing` is the file that changes, or the folder of the name."""

    thing: int
    call: Call
    name: str = ""
    target: int = -1
    new: tuple[int, str] | None = None


class Journal:
    """The calls of a program below `root`, which was an empty folder when it began."""

    def __init__(self, root: str, calls: Sequence[Call]) -> None:
        self._tree: dict[int, dict[str, int]] = {ROOT: {}}
        self._made = ROOT
        self._root = posixpath.normpath(root)
        self.steps = [step for call in calls if (step := self._step(call)) is not None]

    def __len__(self) -> int:
        return len(self.steps)

    def acknowledged(self, cut: int) -> int:
        """How many turns somebody was told of before the cut."""
        return sum(isinstance(step.call, Said) for step in self.steps[:cut])

    def lay_out(self, cut: int, dice: Random, into: Path) -> str:
        """Make the folder that the disk holds after a cut before this call, and say what the disk did."""
        kind = dice.choice(tuple(_KINDS))
        keeps = _KINDS[kind]
        tree: dict[int, dict[str, int]] = {ROOT: {}}
        files: dict[int, bytearray] = {}
        for step, certain in self._until(cut):
            if isinstance(step.call, Write | Truncate):
                _change(files.setdefault(step.thing, bytearray()), step.call, dice, 1.0 if certain else keeps)
            elif certain or dice.random() < keeps:
                _name(tree, step)
        _written(ROOT, tree, files, into)
        return kind

    def _until(self, cut: int) -> Iterator[tuple[_Step, bool]]:
        """The changes before the cut, and whether a later sync has made each certain."""
        synced = {step.thing: n for n, step in enumerate(self.steps[:cut]) if isinstance(step.call, Sync)}
        for n, step in enumerate(self.steps[:cut]):
            if not isinstance(step.call, Sync | Said):
                folder = step.new[0] if step.new else step.thing
                yield step, n < synced.get(folder, -1)

    def _step(self, call: Call) -> _Step | None:
        if isinstance(call, Said):
            return _Step(thing=-1, call=call)
        if (place := self._place(call.path)) is None:
            return None
        folder, name = place
        thing = self._tree[folder].get(name, -1) if name else ROOT
        if isinstance(call, Create):
            return self._created(folder, name, call) if thing < 0 else None
        if thing < 0:
            return None
        if isinstance(call, Rename | Remove):
            return self._renamed(folder, name, thing, call)
        return _Step(thing=thing, call=call)

    def _created(self, folder: int, name: str, call: Create) -> _Step:
        self._made += 1
        self._tree[folder][name] = self._made
        if call.folder:
            self._tree[self._made] = {}
        return _Step(thing=folder, call=call, name=name, target=self._made)

    def _renamed(self, folder: int, name: str, thing: int, call: Rename | Remove) -> _Step:
        del self._tree[folder][name]
        new = self._place(call.to) if isinstance(call, Rename) else None
        if new is not None:
            self._tree[new[0]][new[1]] = thing
        return _Step(thing=folder, call=call, name=name, target=thing, new=new)

    def _place(self, path: str) -> tuple[int, str] | None:
        """The folder that a path stands in and its name there; None if it is not below the root."""
        path = posixpath.normpath(path)
        if path == self._root:
            return ROOT, ""
        if not path.startswith(self._root + "/"):
            return None
        *above, name = path[len(self._root) + 1 :].split("/")
        folder = ROOT
        for each in above:
            folder = self._tree.get(folder, {}).get(each, -1)
        return (folder, name) if folder in self._tree else None


_KINDS = {"nothing unsynced kept": 0.0, "half of it kept": 0.5, "nearly all kept": 0.9, "all kept": 1.0}
"""How much of what was not synced is there after a cut."""


def _change(file: bytearray, call: Write | Truncate, dice: Random, keeps: float) -> None:
    """What one call did to a file, as far as it reached the disk: sector by sector, each for itself."""
    if isinstance(call, Truncate):
        if dice.random() < keeps:
            _resize(file, call.size)
        return
    start = 0
    while start < len(call.data):
        stop = min(len(call.data), start + SECTOR - (call.at + start) % SECTOR)
        if keeps == 1 or dice.random() < keeps:
            _resize(file, max(len(file), call.at + stop))
            file[call.at + start : call.at + stop] = call.data[start:stop]
        start = stop


def _resize(file: bytearray, size: int) -> None:
    del file[size:]
    file.extend(bytes(size - len(file)))


def _name(tree: dict[int, dict[str, int]], step: _Step) -> None:
    """A change of names; what it needs may not have reached the disk, and then it has not either."""
    names = tree.setdefault(step.thing, {})
    if isinstance(step.call, Create):
        names[step.name] = step.target
        if step.call.folder:
            tree.setdefault(step.target, {})
        return
    if names.get(step.name) == step.target:
        del names[step.name]
        if step.new is not None:
            tree.setdefault(step.new[0], {})[step.new[1]] = step.target


def _written(thing: int, tree: dict[int, dict[str, int]], files: dict[int, bytearray], into: Path) -> None:
    into.mkdir(exist_ok=True)
    for name, each in tree[thing].items():
        if each in tree:
            _written(each, tree, files, into / name)
        else:
            (into / name).write_bytes(files.get(each, b""))
