"""Notices another distribution that installs a package called `lamina`.

Both are in one folder then, and whichever came last has overwritten files of the other. Nothing prevents
that, so it is named, with what to type.
"""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "lamina-context"
"""The name under which lamina is installed. `lamina` on the package index is another project."""


def find_foreign_distributions() -> list[str]:
    """Other installed distributions that have a top-level package `lamina`, each with its version."""
    names = set(metadata.packages_distributions().get("lamina", ())) - {DISTRIBUTION}
    return sorted(f"{name} {metadata.version(name)}" for name in names)


def describe_clash(foreign: list[str]) -> str:
    """What is wrong, as a sentence; "" if nothing is."""
    if not foreign:
        return ""
    return f"{' and '.join(foreign)} also installs a package called lamina, in the same folder as this one"


def describe_remedy(foreign: list[str]) -> str:
    """What to type."""
    names = " ".join(name.partition(" ")[0] for name in foreign)
    return f"pip uninstall -y {names} && pip install --force-reinstall --no-deps {DISTRIBUTION}"
