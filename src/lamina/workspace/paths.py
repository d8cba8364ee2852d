"""Checks paths inside a workspace as text: which are allowed at all, and which names are never read.

A path is written with `/`, from the root, without `..`. Nothing is looked up on disk here. Names are compared
with patterns in a folded spelling. Some file systems ignore case, Unicode variants and invisible characters,
so none of these may get a name around a pattern.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from lamina.errors import BadInput

SECRET = (
    ".git",
    "git~*",
    ".hg",
    ".svn",
    ".jj",
    ".env",
    ".env.*",
    "*.env",
    ".envrc",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".kube/config",
    ".docker/config.json",
    ".ssh",
    ".aws",
    ".gnupg",
    ".npmrc",
    ".pypirc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.kdbx",
    "id_rsa",
    "id_dsa",
    "id_ed25519",
    "id_ecdsa",
    ".lamina-*",
)
"""Names that are never read or written: keys, and folders whose files version control runs.

A pattern with a slash is of names that stand in each other: `config.json` is a secret only in `.docker`, and
projects keep other files in a folder of that name.
"""

NOISE = (
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
)
"""Folders that a walk leaves out. They can be read by name."""

LONGEST = 4096
"""Bytes of a path, as the common systems allow."""

_VARIATIONS = frozenset(map(chr, (0x034F, *range(0xFE00, 0xFE10))))
"""Invisible characters that Unicode does not put among the control and format characters."""

_HINT = "give a path from the root of the workspace, as in 'docs/spec.md'"


def split_path(path: str) -> tuple[str, ...]:
    """The names of a path; none for the root itself. Refuses paths that could lead elsewhere."""
    problem = _find_problem(path)
    if problem:
        raise BadInput(problem, place=display_name(path), hint=_HINT)
    return tuple(name for name in path.split("/") if name not in {"", "."})


def join_path(names: Iterable[str]) -> str:
    return "/".join(names) or "."


def find_excluded(names: Sequence[str], patterns: Iterable[str] = SECRET) -> str:
    """The first of these names that a pattern forbids, "" if none is forbidden."""
    known_patterns = tuple(patterns)
    for end in range(1, len(names) + 1):
        if is_excluded(names[:end], known_patterns):
            return names[end - 1]
    return ""


def is_excluded(names: Sequence[str], patterns: Iterable[str] = SECRET) -> bool:
    """Whether a pattern forbids the last of these names, alone or with the folders before it."""
    folded_names = tuple(map(fold, names))
    return any(_matches_end(folded_names, _split_pattern(pattern)) for pattern in patterns)


def holds_excluded(name: str, patterns: Iterable[str] = SECRET) -> bool:
    """Whether a pattern forbids something because it is in a folder of this name.

    Such a folder keeps its name: `.docker/config.json` would no longer be a secret in `notes`.
    """
    folded_name = fold(name)
    for pattern in patterns:
        folders = _split_pattern(pattern)[:-1]
        if any(fnmatchcase(folded_name, folder) for folder in folders):
            return True
    return False


def _matches_end(folded_names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether the last names match the parts of a pattern, one by one."""
    last_names = folded_names[-len(parts) :]
    if len(last_names) < len(parts):
        return False
    return all(map(fnmatchcase, last_names, parts))


@lru_cache(maxsize=1024)
def _split_pattern(pattern: str) -> tuple[str, ...]:
    """The folded patterns of the names that stand in each other."""
    return tuple(map(fold, pattern.split("/")))


@lru_cache(maxsize=4096)
def fold(name: str) -> str:
    """A name as the least exact file system would compare it.

    Case, Unicode variants, dots and spaces at the end do not count, and neither do characters that some file
    system ignores: `.GIT`, `.git.` and `.g\u200bit` are all `.git`.
    """
    visible = []
    for char in name:
        is_control = unicodedata.category(char) in {"Cf", "Cc", "Cs"}
        if not is_control and char not in _VARIATIONS:
            visible.append(char)
    normalized = unicodedata.normalize("NFKC", "".join(visible)).casefold()
    normalized = unicodedata.normalize("NFKC", normalized)
    return normalized.rstrip(" .") or normalized


def is_plain(name: str) -> bool:
    """Whether a name can be printed on one line, and read back unchanged."""
    categories = set(map(unicodedata.category, name))
    return categories.isdisjoint(("Cc", "Cf", "Cs", "Zl", "Zp"))


def display_name(name: str) -> str:
    """A name for a message: as it is if it is plain, else escaped. Long names are cut."""
    short = name
    if len(name) > 200:
        short = f"{name[:199]}…"
    if is_plain(short):
        return short
    return ascii(short)[1:-1]


def _find_problem(path: str) -> str:
    """Why a path is not allowed, "" if it is."""
    outside = "it is not inside the workspace"
    if not isinstance(path, str):
        return "a path must be text"
    if not is_plain(path):
        return "a path with control or invisible characters"
    if len(path.encode()) > LONGEST:
        return f"a path of more than {LONGEST:,} bytes"
    if path.startswith(("/", "~")) or path[1:3] in {":/", ":\\"}:
        return outside
    # it parts folders on one system and is a letter on another
    if "\\" in path:
        return "a path with a backslash"
    climbs = any(map(_climbs, path.split("/")))
    return outside if climbs else ""


def _climbs(name: str) -> bool:
    """Whether some system takes a name for `..`: with spaces, more dots, or dots of another script."""
    if name in {"", "."}:
        return False
    return set(unicodedata.normalize("NFKC", name)) <= {".", " "}
