"""Tells whether a path fits a pattern such as `docs/**/*.md`."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches_glob(names: tuple[str, ...], glob: tuple[str, ...]) -> bool:
    """Whether a path, as its names, fits a pattern, as its steps.

    `*` stays in one folder, `**` stands for any number of folders. A `**` at the end stands for at least one
    name. All steps of the pattern that the path can have reached so far are kept together, so the work is at
    most the number of names times the number of steps.
    """
    reached = _skip_stars({0}, glob)
    for name in names:
        advanced = set()
        waiting = set()
        for step in reached:
            if step == len(glob):
                continue
            if glob[step] == "**":
                waiting.add(step)
                advanced.add(step + 1)
            elif fnmatchcase(name, glob[step]):
                advanced.add(step + 1)
        reached = _skip_stars(advanced, glob) | waiting
    return len(glob) in reached


def _skip_stars(places: set[int], glob: tuple[str, ...]) -> set[int]:
    """The places, and those after each `**` that may stand for nothing: every `**` but one at the end."""
    reached = set(places)
    for place in places:
        ahead = place
        while ahead < len(glob) - 1 and glob[ahead] == "**":
            ahead += 1
            reached.add(ahead)
    return reached
