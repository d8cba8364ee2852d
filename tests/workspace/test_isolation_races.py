"""The isolation catalogue, between a check and an open: what is swapped in the meantime is not followed."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from tests.workspace.test_isolation import SECRET, WAYS, Attempt, World, build_world, snapshot


@contextmanager
def swapping(world: World) -> Iterator[None]:
    """A file and a folder that a thread swaps for links and back, as fast as it can, whoever writes."""
    leaf, folder, away = (world.root / name for name in ("leaf", "dir", "away"))
    beside, done = world.root / "beside", threading.Event()
    steps: tuple[Callable[[], object], ...] = (
        lambda: beside.write_text("plain"),
        lambda: beside.replace(leaf),
        folder.mkdir,
        lambda: (folder / "secret.txt").write_text("plain"),
        lambda: folder.rename(away),
        lambda: folder.symlink_to(world.other),
        lambda: beside.symlink_to(world.other / "secret.txt"),
        lambda: beside.replace(leaf),
        folder.unlink,
        lambda: away.rename(folder),
        lambda: shutil.rmtree(away),
    )

    def swap() -> None:
        while not done.is_set():
            for step in steps:
                with suppress(OSError):
                    step()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    "way", [way for way in WAYS if way not in {"mv from", "mv to", "rm", "project file"}]
)
def test_nothing_is_seen_or_changed_between_a_check_and_an_open(tmp_path: Path, way: str) -> None:
    world = build_world(tmp_path)

    async def ask_often() -> list[Attempt]:
        return [
            await WAYS[way](world.root, path)
            for _ in range(5 if way == "grep" else 25)
            for path in ("leaf", "dir/secret.txt", "dir")
        ]

    with swapping(world):
        seen = anyio.run(ask_often)
    assert not any(SECRET in got.text for got in seen)
    assert snapshot(world.other) == [("secret.txt", stat.S_IFREG, SECRET)]


@pytest.mark.parametrize(
    "way", ["read", "grep", "edit", "files by path", "files by folder", "persona", "attach"]
)
@pytest.mark.parametrize("path", ["docs/leaf", "dir/secret.txt"])
def test_a_link_that_comes_right_before_the_open_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, way: str
) -> None:
    world = build_world(tmp_path)
    (world.root / "docs" / "leaf").write_text("plain")
    (world.root / "dir").mkdir()
    (world.root / "dir" / "secret.txt").write_text("plain")
    leaf = (world.root / "docs" / "leaf", world.other / "secret.txt")
    swaps = {"leaf": leaf, "dir": (world.root / "dir", world.other)}
    really, swapped = os.open, list[Path]()

    def late(name: str, *rest: int, **more: int) -> int:
        if "dir_fd" in more and name == path.split("/")[path == "docs/leaf"] and not swapped:
            here, target = swaps[str(name)]
            swapped.append(here.rename(here.with_name("away")))
            here.symlink_to(target)
        return really(name, *rest, **more)

    monkeypatch.setattr(os, "open", late)
    monkeypatch.setattr(os, "supports_dir_fd", {late, *os.supports_dir_fd})
    requested_path = path.partition("/")[0] if way == "files by folder" else path
    got = anyio.run(WAYS[way], world.root, requested_path)
    assert swapped
    assert SECRET not in got.text
    assert (world.other / "secret.txt").read_text() == SECRET
