"""pydantic-ai's workspaces over lamina's: files below one folder, without commands.

    backend = LaminaWorkspaceBackend("project")
    result = await agent.run(prompt, workspace=backend)

lamina's workspace follows no symbolic link and reads no secrets, so a model cannot leave the folder. What it
refuses is raised as the built-in error that pydantic-ai expects. `root` is the environment: the caller makes
and removes it.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from anyio.to_thread import run_sync
from pydantic_ai.workspaces import FileEntry, WorkspaceRef, WorkspaceUnavailableError

from lamina.errors import BadInput
from lamina.workspace.workspace import Workspace

__all__ = ["LaminaWorkspaceBackend"]

T = TypeVar("T")


class LaminaWorkspaceBackend:
    """Files below `root`. `options` are those of `lamina.workspace.workspace.Workspace`."""

    def __init__(self, root: str | os.PathLike[str], **options: Any) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100 - text, as pydantic-ai has it
        self._options = options
        self._workspace: Workspace | None = None

    @property
    def ref(self) -> WorkspaceRef:
        """The folder, by which a later run reaches the same files."""
        return WorkspaceRef(provider="lamina", id=self._root)

    async def working_dir(self) -> str:
        return await run_sync(self._find_root)

    async def realpath(self, path: str) -> str:
        return await run_sync(os.path.realpath, path)

    async def read_bytes(self, path: str) -> bytes:
        return await self._run(lambda files, name: files.read(name), path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        await self._run(lambda files, name: files.write(name, data), path)

    async def make_dir(self, path: str) -> None:
        await self._run(_make_folder, path)

    async def remove(self, path: str) -> None:
        path = _shorten(path)
        if posixpath.commonpath((await self.working_dir(), path)) == path:
            raise ValueError("the folder of the workspace cannot be removed, nor one above it")
        await self._run(_remove_all, path)

    async def exists(self, path: str) -> bool:
        return await self._run(lambda files, name: bool(files.kind(name)), path)

    async def stat(self, path: str) -> FileEntry:
        is_folder, size = await self._run(_measure, path)
        return FileEntry(name=posixpath.basename(path), path=path, is_dir=is_folder, size=size)

    async def list_dir(self, path: str) -> list[FileEntry]:
        """What is in a folder, with full paths. A folder has no size."""
        root = await self.working_dir()
        entries: list[FileEntry] = []
        for item in await self._run(_list_items, path):
            size = None if item.folder else item.size
            full_path = posixpath.join(root, item.path)
            name = posixpath.basename(item.path)
            entries.append(FileEntry(name=name, path=full_path, is_dir=item.folder, size=size))
        return entries

    async def _run(self, function: Callable[[Workspace, str], T], path: str) -> T:
        """Run a function over the workspace, with the path from its root, in a thread."""
        return await run_sync(self._run_here, function, path)

    def _run_here(self, function: Callable[[Workspace, str], T], path: str) -> T:
        """Run a function over the workspace, with the path from its root, in this thread.

        A path outside of the root is refused before the workspace sees it. The workspace is opened at the
        first use, since the folder may be made after this object.
        """
        root = self._find_root()
        path = _shorten(path)
        if posixpath.commonpath((root, path)) != root:
            raise PermissionError(f"{path} is not inside the workspace")
        if self._workspace is None:
            self._workspace = Workspace(root, **self._options)
        name = posixpath.relpath(path, root)
        with _raise_built_in_errors(self._workspace, name):
            return function(self._workspace, name)

    def _find_root(self) -> str:
        """The real path of the folder. It is looked for at each use: the caller may remove it."""
        root = os.path.realpath(self._root)
        if not os.path.isdir(root):  # noqa: PTH112 - text, as pydantic-ai has it
            raise WorkspaceUnavailableError(f"there is no folder {self._root}")
        return root


@contextmanager
def _raise_built_in_errors(files: Workspace, name: str) -> Iterator[None]:
    """Raise what the workspace refuses as the built-in error that pydantic-ai expects."""
    try:
        yield
    except BadInput as error:
        raise _find_built_in_error(files, name)(f"{name}: {error.problem}") from error


def _find_built_in_error(files: Workspace, name: str) -> type[OSError]:
    """The error that the system would have raised for what is at this path.

    A path below a file is not a folder. What the workspace withholds is not permitted. What is there, and
    was refused for another reason, is not permitted either.
    """
    above = posixpath.dirname(name)
    while above:
        if not files.withheld(above) and files.kind(above) == "file":
            return NotADirectoryError
        above = posixpath.dirname(above)
    if files.withheld(name):
        return PermissionError
    return {"folder": IsADirectoryError, "": FileNotFoundError}.get(files.kind(name), PermissionError)


def _shorten(path: str) -> str:
    """`./src//a/../b.py` becomes `src/b.py`.

    A path with a NUL stays, so that it is refused: Python 3.11.2 would cut it there.
    """
    if "\0" in path:
        return path
    return posixpath.normpath(path)


def _make_folder(files: Workspace, name: str) -> None:
    if files.kind(name) == "file":
        raise FileExistsError(f"{name} is a file")
    files.make_folder(name)


def _remove_all(files: Workspace, name: str) -> None:
    """Remove a file, or a folder with everything in it."""
    if files.kind(name) == "folder":
        for item in files.items(name):
            _remove_all(files, item.path)
    files.remove(name)


def _measure(files: Workspace, name: str) -> tuple[bool, int | None]:
    """Whether something is a folder, and the size of a file."""
    if files.kind(name) == "folder":
        return True, None
    return False, len(files.read(name))


def _list_items(files: Workspace, name: str) -> list[Any]:
    if files.kind(name) == "file":
        raise NotADirectoryError(f"{name} is a file")
    return files.items(name)
