"""One workspace. Whatever must not be had from it, through every way in, is in `test_isolation`."""

from __future__ import annotations

import gc
import os
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.errors import BadInput
from lamina.workspace import FolderItem, Workspace, open_folders, workspace
from lamina.workspace.paths import fold

SECRET = b"belongs to another workspace"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the root, with a file that must never be seen."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret.txt").write_bytes(SECRET)
    return tmp_path / "other"


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "spec.md").write_bytes(b"# Spec\n")
    (folder / "a.txt").write_bytes(b"alpha")
    (folder / "link").symlink_to(outside / "secret.txt")
    (folder / "way").symlink_to(outside)
    (folder / "inner").symlink_to("a.txt")
    return folder


def refused(act: Callable[[], object]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        act()
    return caught.value


def test_a_file_is_read_by_its_path_from_the_root(root: Path) -> None:
    space = Workspace(root)
    assert space.read("docs/spec.md") == b"# Spec\n"
    assert space.read("./docs//spec.md") == b"# Spec\n"


def test_what_stands_outside_makes_no_difference_to_the_answer(root: Path, outside: Path) -> None:
    space = Workspace(root)
    there = [str(refused(lambda way=way: space.read(way))) for way in ("../other/secret.txt", "link")]  # type: ignore[misc]
    (outside / "secret.txt").unlink()
    assert [str(refused(lambda way=way: space.read(way))) for way in ("../other/secret.txt", "link")] == there  # type: ignore[misc]


def test_hard_links_are_refused_unless_allowed(root: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", root / "twin.txt")
    assert "hard link" in str(refused(lambda: Workspace(root).read("twin.txt")))
    refused(lambda: Workspace(root).write("twin.txt", b"changed"))
    assert (outside / "secret.txt").read_bytes() == SECRET
    assert Workspace(root, linked=True).read("twin.txt") == SECRET


def test_a_write_never_goes_through_a_hard_link(root: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", root / "twin.txt")
    Workspace(root, linked=True).write("twin.txt", b"changed")
    assert (outside / "secret.txt").read_bytes() == SECRET


def test_a_folder_is_no_file(root: Path) -> None:
    space = Workspace(root)
    for name in ("docs", "."):
        refused(lambda name=name: space.read(name))  # type: ignore[misc]
        refused(lambda name=name: space.write(name, b"x"))  # type: ignore[misc]


def test_what_is_no_plain_file_is_never_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(root / "pipe")
    opened: list[object] = []
    really = os.open

    def noted(path: str, *rest: int, **more: int) -> int:
        opened.append(path)
        return really(path, *rest, **more)

    space = Workspace(root)
    monkeypatch.setattr(os, "open", noted)
    monkeypatch.setattr(os, "supports_dir_fd", {noted})
    refused(lambda: space.read("pipe"))
    assert opened == []


def test_a_hard_link_that_comes_right_before_the_open_is_not_read(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.open

    def late(path: str, *rest: int, **more: int) -> int:
        if path == "a.txt":
            (root / "a.txt").unlink()
            os.link(outside / "secret.txt", root / "a.txt")
        return really(path, *rest, **more)

    space = Workspace(root)
    monkeypatch.setattr(os, "open", late)
    monkeypatch.setattr(os, "supports_dir_fd", {late})
    assert "hard link" in str(refused(lambda: space.read("a.txt")))


def test_a_device_is_refused() -> None:
    assert "a device" in str(refused(lambda: Workspace("/dev").read("null")))


def test_a_size_is_counted_while_reading(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "big").write_bytes(b"x" * 1000)
    assert len(Workspace(root, largest=1000).read("big")) == 1000
    refused(lambda: Workspace(root, largest=999).read("big"))
    refused(lambda: Workspace(root).read("big", limit=10))
    monkeypatch.setattr(open_folders, "_CHUNK", 7)
    assert Workspace(root).read("big") == b"x" * 1000


def test_a_folder_tells_what_cannot_be_had_and_why(root: Path, outside: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / ".env").write_text("KEY=1")
    (root / "new\nline").write_text("x")
    os.link(outside / "secret.txt", root / "twin")
    items = {item.path: item.why for item in Workspace(root).items()}
    assert items == {
        ".env": "excluded", "a.txt": "", "docs": "", "inner": "a symbolic link", "link": "a symbolic link",
        "new\\nline": "a name that cannot be shown", "pipe": "a pipe", "twin": "a hard link",
        "way": "a symbolic link",
    }  # fmt: skip


def test_a_walk_finds_files_in_order_and_leaves_noise_out(root: Path) -> None:
    (root / "node_modules" / "x").mkdir(parents=True)
    (root / "node_modules" / "x" / "y.js").write_text("y")
    walked = list(Workspace(root).walk())
    assert [item.path for item in walked if not item.why] == ["a.txt", "docs/spec.md"]
    assert FolderItem("node_modules", folder=True, why="skipped") in walked
    assert Workspace(root).read("node_modules/x/y.js") == b"y"


def test_a_walk_has_an_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MOST", 2)
    assert list(Workspace(root).walk())[-1].why == "more than 2 files"
    monkeypatch.setattr(workspace, "MOST", 200)
    monkeypatch.setattr(workspace, "DEEPEST", 1)
    assert FolderItem("docs", folder=True, why="too deep") in Workspace(root).walk()


@pytest.mark.parametrize(
    "name",
    (
        ".git/config .GIT/config sub/.Env .env.local \uff0eenv KEY.PEM .env. .ENV\ufe0f git~1 "
        "prod.env .envrc .git-credentials .pgpass id_dsa app.JKS vault.kdbx "
        ".kube/config home/.Kube/CONFIG .docker/config.json ./.docker//config.json a/.docker/config.json"
    ).split(),
    ids=ascii,
)
def test_secrets_are_excluded_in_every_spelling(root: Path, name: str) -> None:
    space = Workspace(root)
    assert "excluded" in str(refused(lambda: space.read(name)))
    refused(lambda: space.write(name, b"x"))
    refused(lambda: space.move("a.txt", name))


def test_a_file_that_is_a_secret_by_its_folder_stays_one(root: Path) -> None:
    (root / ".docker").mkdir()
    (root / ".docker" / "config.json").write_bytes(SECRET)
    (root / ".docker" / "Dockerfile").write_text("FROM scratch")
    (root / "config.json").write_text("{}")
    space = Workspace(root)
    assert space.read("config.json") == b"{}"
    assert space.read(".docker/Dockerfile") == b"FROM scratch"
    reasons = {item.path: item.why for item in space.items(".docker")}
    assert reasons == {".docker/Dockerfile": "", ".docker/config.json": "excluded"}
    assert "excluded by their place" in str(refused(lambda: space.move(".docker", "notes")))
    (root / "outer").mkdir()
    space.move(".docker/Dockerfile", "outer/Dockerfile")
    assert (root / ".docker" / "config.json").read_bytes() == SECRET


@given(st.text(max_size=20))
@example("\u2126")
@example("İ")
def test_the_folded_spelling_is_stable_and_the_same_for_equivalent_names(name: str) -> None:
    assert fold(fold(name)) == fold(name)
    assert fold(unicodedata.normalize("NFD", name)) == fold(unicodedata.normalize("NFC", name))


def test_a_write_is_whole_or_not_at_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace(root)

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "rename", "fchmod"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fails)
            assert "space" in str(refused(lambda: space.write("a.txt", b"new")))
        assert (root / "a.txt").read_bytes() == b"alpha"
        assert list(root.glob(".lamina-*")) == []


def test_a_write_keeps_the_mode_and_makes_folders(root: Path) -> None:
    space = Workspace(root)
    (root / "a.txt").chmod(0o750)
    assert space.write("a.txt", b"new") is False
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o750
    assert space.write("deep/er/b.txt", b"b") is True
    assert (root / "deep" / "er" / "b.txt").read_bytes() == b"b"
    refused(lambda: space.write("a.txt/b", b"x"))
    refused(lambda: space.write("a.txt", b"x", replace=False))
    refused(lambda: Workspace(root, largest=1).write("a.txt", b"xx"))


def test_a_file_that_may_only_be_read_stays(root: Path) -> None:
    (root / "a.txt").chmod(0o444)
    refused(lambda: Workspace(root).write("a.txt", b"x"))
    refused(lambda: Workspace(root).remove("a.txt"))


def test_edits_of_many_threads_are_all_kept(root: Path) -> None:
    space = Workspace(root)
    space.write("n.txt", b"".join(b"<%d>" % number for number in range(40)))

    def edit(first: int) -> None:
        for number in range(first, 40, 4):
            space.edit("n.txt", b"<%d>" % number, b"[%d]" % number)

    threads = [threading.Thread(target=edit, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert space.read("n.txt") == b"".join(b"[%d]" % number for number in range(40))


def test_an_edit_needs_one_place_unless_told_otherwise(root: Path) -> None:
    space = Workspace(root)
    space.write("e.txt", b"one two one")
    assert "2 times" in str(refused(lambda: space.edit("e.txt", b"one", b"1")))
    assert "not there" in str(refused(lambda: space.edit("e.txt", b"three", b"3")))
    refused(lambda: space.edit("e.txt", b"", b"3"))
    assert space.edit("e.txt", b"one", b"1", every=True) == 2
    assert space.read("e.txt") == b"1 two 1"


def test_moving_never_overwrites_and_removing_is_not_recursive(root: Path) -> None:
    space = Workspace(root)
    space.write("b.txt", b"b")
    refused(lambda: space.move("a.txt", "b.txt"))
    refused(lambda: space.move("docs", "docs/deeper"))
    refused(lambda: space.move("a.txt", "a.txt"))
    assert "not empty" in str(refused(lambda: space.remove("docs")))
    space.move("docs", "kept/docs")
    assert space.read("kept/docs/spec.md") == b"# Spec\n"
    space.remove("b.txt")
    assert space.kind("b.txt") == ""
    refused(lambda: space.remove("."))


def test_files_that_are_opened_are_closed_again(root: Path) -> None:
    gc.collect()  # what other tests left behind is not closed in the middle of this one
    space = Workspace(root)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (
        "../other/secret.txt",
        "link",
        "way/secret.txt",
        "a.txt",
        "docs",
        "gone",
        "gone/x",
        "a.txt/x",
    ):
        for act in (space.read, space.items, space.kind, lambda way: space.write(way, b"x")):
            try:
                act(path)
            except BadInput:
                continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    space.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1
    refused(lambda: space.read("a.txt"))


def test_a_root_that_is_no_folder_is_refused(root: Path) -> None:
    refused(lambda: Workspace(root / "a.txt"))
    refused(lambda: Workspace(root / "gone"))


def test_an_edit_that_would_make_terabytes_of_a_few_bytes_is_refused_before_it_is_made(
    tmp_path: Path,
) -> None:
    space = Workspace(tmp_path)
    space.write("a.txt", b"a" * 2**20)
    with pytest.raises(BadInput, match="bytes"):
        space.edit("a.txt", b"a", b"b" * 2**22, every=True)
    assert space.read("a.txt") == b"a" * 2**20


def test_a_walk_looks_at_so_many_things_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each folder of many holds many: what is listed is counted before it is looked at."""
    monkeypatch.setattr(workspace, "MOST", 30)
    for number in range(9):
        folder = tmp_path / "/".join(["0"] * number)
        folder.mkdir(exist_ok=True)
        for name in range(20):
            (folder / f"f{name}").write_text("")
    space = Workspace(tmp_path)
    looked: list[str] = []
    look = Workspace._make_item  # noqa: SLF001 - to count what is looked at

    def counted(self: Workspace, way: tuple[str, ...], folder: int) -> FolderItem:
        looked.append("/".join(way))
        return look(self, way, folder)

    monkeypatch.setattr(Workspace, "_make_item", counted)
    items = list(space.walk())
    assert len(looked) <= 30
    assert [item.why for item in items if item.why] == ["more than 30 files"] * 2
    assert space.items()[-1].why == ""
    monkeypatch.setattr(workspace, "MOST", 5)
    assert [item.why for item in space.items()] == [""] * 5 + ["more than 5 files"]


def test_a_file_is_written_with_the_folders_above_it(root: Path) -> None:
    workspace = Workspace(root)
    workspace.write("new/inner/file", b"")
    assert workspace.kind("new/inner") == "folder"
    with pytest.raises(BadInput, match="it is no folder"):
        workspace.write("new/inner/file/x", b"")


def test_two_workspaces_of_one_folder_lose_no_edit(root: Path) -> None:
    """Each agent has a workspace of its own."""
    lines = [f"line {number}\n".encode() for number in range(60)]
    (root / "a.txt").write_bytes(b"".join(lines))

    def edit(space: Workspace, own_lines: list[bytes]) -> None:
        for line in own_lines:
            space.edit("a.txt", line, line.upper())

    threads = [
        threading.Thread(target=edit, args=(Workspace(folder), lines[start::2]))
        for start, folder in enumerate((root, root / "."))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (root / "a.txt").read_bytes() == b"".join(lines).upper()
