"""The isolation catalogue: everything that must not be had from a workspace, through every way in.

A case puts something into the root and names a path; a way asks for that path. Whatever is asked, nothing of
the other workspace is seen or changed, and who asked is told.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.context.files import files
from lamina.context.gather import gather
from lamina.context.persona import persona
from lamina.context.tools import answer, workspace_tools
from lamina.core import CHARS4, ToolCall, ToolResult, text_of
from lamina.errors import BadInput
from lamina.fitting import Policy
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.stores import MemoryStore
from lamina.workspace import Workspace

SECRET = "belongs to another workspace"  # noqa: S105 - what a test looks for


class World(NamedTuple):
    root: Path
    other: Path


class Attempt(NamedTuple):
    """What came back: the text that was shown, and whether it was said that something is not to be had."""

    text: str
    refused: bool


def build_world(top: Path) -> World:
    world = World(top / "root", top / "other")
    (world.root / "docs").mkdir(parents=True)
    world.other.mkdir()
    (world.root / "docs" / "spec.md").write_text("# Spec\n")
    (world.root / "a.txt").write_text("alpha")
    (world.other / "secret.txt").write_text(SECRET)
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return build_world(tmp_path)


def snapshot(folder: Path) -> list[tuple[str, int, str]]:
    """Everything below a folder: names, kinds, and the text of plain files."""
    gathered = sorted(folder.rglob("*"))
    return [
        (
            str(one.relative_to(folder)),
            stat.S_IFMT(one.lstat().st_mode),
            one.read_text() if plain(one) else "",
        )
        for one in gathered
    ]


def plain(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


# What is in the root, and the path that is asked for.


def link(name: str, target: str) -> Callable[[World], None]:
    return lambda world: (world.root / name).symlink_to(target.format(**world._asdict()))


def chain(world: World) -> None:
    (world.root / "first").symlink_to("second")
    (world.root / "second").symlink_to("docs/third")
    (world.root / "docs" / "third").symlink_to(world.other / "secret.txt")


def loop(world: World) -> None:
    (world.root / "one").symlink_to("two")
    (world.root / "two").symlink_to("one")


def listening(world: World) -> None:
    folder = os.open(world.root, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as unix_socket:
            unix_socket.bind(f"/proc/self/fd/{folder}/socket")  # a whole path may be too long for a socket
    except OSError as error:
        pytest.skip(f"no sockets here: {error}")
    finally:
        os.close(folder)


def device(world: World) -> None:
    try:
        os.mknod(world.root / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # gives zeros without end
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EACCES, errno.ENOTSUP}:
            raise
        pytest.skip("only root makes devices")


def key(name: str) -> Callable[[World], None]:
    def put(world: World) -> None:
        (world.root / name).parent.mkdir(exist_ok=True, parents=True)
        (world.root / name).write_text(SECRET)

    return put


def nothing(_: World) -> None:
    """The path alone is the attack."""


CASES: dict[str, tuple[str, Callable[[World], None]]] = {
    "another workspace by its absolute path": ("{other}/secret.txt", nothing),
    "an absolute path that climbs out of the root": ("{root}/../other/secret.txt", nothing),
    "an absolute path with a link behind the root": ("{root}/way/secret.txt", link("way", "{other}")),
    "an absolute path that begins like the root": ("{root}-2/secret.txt", nothing),
    "an absolute path to a key": ("{root}/.env", key(".env")),
    "two slashes": ("//etc/passwd", nothing),
    "the root of the process": ("/proc/self/root{other}/secret.txt", nothing),
    "a link to the root of the process": ("up{other}/secret.txt", link("up", "/proc/self/root")),
    "a link to its own folder": ("here/../other/secret.txt", link("here", "/proc/self/cwd")),
    "..": ("../other/secret.txt", nothing),
    ".. after a folder": ("docs/../../other/secret.txt", nothing),
    ".. that stays inside": ("docs/../a.txt", nothing),
    ".. behind dots": ("./.././other/secret.txt", nothing),
    ".. with a space": ("docs/.. /.. /other/secret.txt", nothing),
    "more dots": (".../other/secret.txt", nothing),
    "fullwidth dots": ("\uff0e\uff0e/other/secret.txt", nothing),
    "two-dot leader": ("\u2025/other/secret.txt", nothing),
    "a backslash": ("..\\other\\secret.txt", nothing),
    "a drive": ("C:/secret.txt", nothing),
    "a home": ("~/secret.txt", nothing),
    "a link to a file": ("link", link("link", "{other}/secret.txt")),
    "a relative link to a file": ("link", link("link", "../other/secret.txt")),
    "a link to a folder": ("way/secret.txt", link("way", "{other}")),
    "a link that stays inside": ("inner", link("inner", "a.txt")),
    "a link to nothing": ("gone", link("gone", "{other}/nothing.txt")),
    "a chain of links": ("first", chain),
    "a loop of links": ("one", loop),
    "a loop on the way": ("one/secret.txt", loop),
    "a hard link": ("twin", lambda world: os.link(world.other / "secret.txt", world.root / "twin")),
    "a pipe": ("pipe", lambda world: os.mkfifo(world.root / "pipe")),
    "a socket": ("socket", listening),
    "a device": ("device", device),
    "a zero byte": ("a.txt\0.md", nothing),
    "a line break": ("a.txt\nb", nothing),
    "half a character": ("a\udc80", nothing),
    "writing direction": ("a\u202etxt.exe", nothing),
    "a long name": ("x" * 300, nothing),
    "a long name on the way": ("x" * 300 + "/a", nothing),
    "a long path": ("x/" * 3000, nothing),
    "a key": (".env", key(".env")),
    "a key in another case": (".ENV", key(".ENV")),
    "a key in fullwidth": ("\uff0eenv", key("\uff0eenv")),
    "a key with a dot behind it": (".env.", key(".env.")),
    "a key with a space behind it": (".env ", key(".env ")),
    "a key with an invisible character": (".e\u200bnv", key(".e\u200bnv")),
    "a key with a variation selector": (".env\ufe0f", key(".env\ufe0f")),
    "a key with long s": (".\u017f\u017fh/id", key(".\u017f\u017fh/id")),
    "what version control runs": (".Git/hooks/x", key(".Git/hooks/x")),
}


# The ways in.

Way = Callable[[Path, str], Awaitable[Attempt]]


def by_tool(name: str, argument: str = "path", **more: object) -> Way:
    async def ask(root: Path, path: str) -> Attempt:
        call = ToolCall(id="c", name=name, arguments=json.dumps({argument: path} | more))
        (part,) = (await answer(workspace_tools(Workspace(root)), call)).parts
        assert isinstance(part, ToolResult)
        text = text_of(part.content)
        return Attempt(text, part.error or "not searched" in text)

    return ask


def by_source(choose: str) -> Way:
    async def ask(root: Path, path: str) -> Attempt:
        try:
            source = files(root, **{choose: [path]})  # type: ignore[arg-type]
        except BadInput as refused:
            return Attempt(str(refused), refused=True)
        gathered = await gather([source], "look")
        text = "\n".join([*(text_of(one.parts) for one in gathered), *gathered.notes])
        return Attempt(text, not gathered.segments)

    return ask


async def by_persona(root: Path, path: str) -> Attempt:
    gathered = await gather([persona(path=path, root=Workspace(root))], "look")
    return Attempt(
        "\n".join([*(text_of(one.parts) for one in gathered), *gathered.notes]), bool(gathered.notes)
    )


async def by_attaching(root: Path, path: str) -> Attempt:
    store = MemoryStore()
    async with Session.open(
        store, "a", model="gpt-5", policy=Policy(counter=CHARS4), root=root, settings=Settings()
    ) as session:
        try:
            await session.ask("look", attach=[path])
        except BadInput as refused:
            return Attempt(str(refused), refused=True)
        text = "\n".join(text_of(one.parts) for one in session.log)
        assert session.report().metrics.left_out == len(session.notes)
        return Attempt("\n".join([text, *session.notes]), bool(session.notes))


WAYS: dict[str, Way] = {
    "ls": by_tool("ls"),
    "read": by_tool("read"),
    "grep": by_tool("grep", pattern="."),
    "write": by_tool("write", content="mine"),
    "edit": by_tool("edit", old="belongs", new="belonged"),
    "touch": by_tool("touch"),
    "rm": by_tool("rm"),
    "mv from": by_tool("mv", to="taken.txt"),
    "mv to": by_tool("mv", "to", path="a.txt"),
    "files by path": by_source("paths"),
    "files by folder": by_source("folders"),
    "files by pattern": by_source("globs"),
    "persona": by_persona,
    "attach": by_attaching,
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_and_reported_and_nothing_is_seen_or_changed(world: World, case: str) -> None:
    path, put = CASES[case]
    put(world)
    before = [snapshot(folder) for folder in world]
    for name, way in WAYS.items():
        got = anyio.run(way, world.root, path.format(**world._asdict()))
        assert SECRET not in got.text, name
        assert "root:" not in got.text, name
        assert got.refused, (name, got.text)
        assert [snapshot(folder) for folder in world] == before, name


@pytest.mark.parametrize("way", ["ls", "grep", "files by folder", "files by pattern"])
def test_a_look_at_the_whole_root_names_what_it_leaves_out(world: World, way: str) -> None:
    for path, put in CASES.values():
        name = path.split("/")[0]
        if put is not nothing and put is not device and not os.path.lexists(world.root / name):
            put(world)
    requested_path = {"files by pattern": "**"}.get(way, ".")
    got = anyio.run(WAYS[way], world.root, requested_path)
    assert SECRET not in got.text
    if way != "grep":
        assert all(
            name in got.text for name in ("link", "way", "inner", "first", "one", "twin", "pipe", ".env")
        )


TWINS = [
    ("caf\u00e9.txt", "cafe\u0301.txt"),  # composed and decomposed
    ("\ufb01le.txt", "file.txt"),  # a ligature
    ("Readme.md", "README.md"),
    ("a\uff0fb.txt", "a/b.txt"),  # a fullwidth slash is a character of a name
    ("a.txt", "a.txt."),
    ("a.txt", "a.txt "),
]


@pytest.mark.parametrize("way", ["read", "files by path", "persona", "attach"])
@pytest.mark.parametrize(("there", "path"), TWINS, ids=ascii)
def test_another_spelling_never_shows_a_file_that_is_not_there_by_that_name(
    world: World, there: str, path: str, way: str
) -> None:
    (world.root / there).write_text("its text")
    same = os.path.lexists(world.root / path)  # some file systems take both for one name
    assert "its text" in anyio.run(WAYS[way], world.root, there).text
    got = anyio.run(WAYS[way], world.root, path)
    assert got.refused or same


PIECES = [
    "", ".", "..", "...", ".. ", "a.txt", "docs", "spec.md", "way", "link", "other", "secret.txt", "~", "C:",
    "\0", "\\", "..\\", "%2e%2e", "\u200b", "\uff0e\uff0e", "\u2025", "\uff0f", "proc", "self", "root",
    ".env", ".ENV", "twin", "x" * 300,
]  # fmt: skip
PATHS = (
    st.lists(st.sampled_from(PIECES), max_size=6).map("/".join)
    | st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
    | st.text(max_size=12)
)


@pytest.mark.parametrize("way", ["read", "ls", "grep", "files", "attach"])
@pytest.mark.parametrize("spelling", ["{root}/docs/b.txt", "{root}//docs/./b.txt", "{link}/docs/b.txt"])
def test_an_absolute_path_inside_is_taken(tmp_path: Path, way: str, spelling: str) -> None:
    """Also through a link, if the workspace was opened by that name: only the root may be one."""
    root, alias = tmp_path / "root", tmp_path / "alias"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "b.txt").write_text("inside text")
    alias.symlink_to(root)
    opened = alias if "{link}" in spelling else root
    path = spelling.format(root=root, link=alias)
    asked = path.removesuffix("/b.txt") if way in {"ls", "grep"} else path
    found = {
        "read": by_tool("read"),
        "ls": by_tool("ls"),
        "grep": by_tool("grep", pattern="inside"),
        "files": by_source("paths"),
        "attach": by_attaching,
    }
    attempt = anyio.run(found[way], opened, asked)
    assert not attempt.refused
    assert ("b.txt" if way == "ls" else "inside text") in attempt.text


def test_a_workspace_shortens_only_its_own_root(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    assert space.relative(f"{tmp_path}/a/b.txt") == "a/b.txt"
    assert space.relative(str(tmp_path)) == "."
    space.write(f"{tmp_path}/new.txt", b"x")
    space.move(f"{tmp_path}/new.txt", f"{tmp_path}/moved.txt")
    assert (tmp_path / "moved.txt").read_bytes() == b"x"
    for outside in (f"{tmp_path}-2/a.txt", str(tmp_path.parent), f"{tmp_path}/../a.txt"):
        with pytest.raises(BadInput, match="not inside the workspace"):
            space.relative(outside)
    space.close()


@given(path=PATHS, way=st.sampled_from([way for way in WAYS if way not in {"attach", "persona"}]))
@example(path="way/secret.txt", way="write")
@example(path="twin", way="mv from")
def test_no_path_shows_or_changes_what_stands_outside(
    tmp_path_factory: pytest.TempPathFactory, path: str, way: str
) -> None:
    world = build_world(tmp_path_factory.mktemp("fuzz"))
    (world.root / "way").symlink_to(world.other)
    (world.root / "link").symlink_to(world.other / "secret.txt")
    (world.root / ".env").write_text(SECRET)
    os.link(world.other / "secret.txt", world.root / "twin")
    try:
        got = anyio.run(WAYS[way], world.root, path)
    except UnicodeEncodeError:
        pytest.fail("half a character came through")
    assert SECRET not in got.text
    assert snapshot(world.other) == [("secret.txt", stat.S_IFREG, SECRET)]
    assert (world.root / ".env").read_text() == SECRET
    assert (world.root / "twin").samefile(world.other / "secret.txt")
