"""Which files are meant: paths, folders and globs, in an order that is the same on every machine.

Nothing is opened here. In a folder, files count whose names end as records do; one that is named alone
counts whatever it is called, since what it holds decides what it is.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from lamina.errors import BadInput

ENDINGS = (".jsonl", ".ndjson", ".json", ".md")
PACKED = ("", ".gz", ".zst")

_NAMES = tuple(ending + packed for ending in ENDINGS for packed in PACKED)
_SIGNS = frozenset("*?[")

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def files(paths: Paths) -> list[Path]:
    """Every file, once; in the order of the paths, and sorted within each folder and glob."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: dict[str, Path] = {}
    for path in given:
        for file in _meant(Path(path).expanduser()):
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def size(path: Path) -> int:
    """Its bytes; 0 for what has no size, or is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _meant(path: Path) -> Iterator[Path]:
    wild = bool(_SIGNS & set(str(path))) and not path.exists()
    if not wild and not path.exists():
        raise BadInput("there is no such file or folder", place=str(path), hint="check the path")
    matching = sorted(glob.glob(str(path), recursive=True)) if wild else [path]  # noqa: PTH207 - also absolute
    if not matching:
        raise BadInput("nothing matches", place=str(path), hint="check the pattern")
    for match in map(Path, matching):
        yield from _inside(match) if match.is_dir() else (match,)


def _inside(folder: Path) -> Iterator[Path]:
    """Files of a folder and of those in it. Links to folders are not followed, and no pipe is opened."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        paths = (Path(where, name) for name in sorted(names) if name.lower().endswith(_NAMES))
        yield from (path for path in paths if path.is_file())
