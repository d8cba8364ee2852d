"""pydantic-ai's own suite for workspaces, over lamina's and over its own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "pydantic_ai.workspaces", reason="pydantic-ai is not installed: run `make adapters` to test it"
)

from pydantic_ai.workspaces import LocalWorkspaceBackend, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from lamina.adapters.pydantic_workspace import LaminaWorkspaceBackend


async def destroy(backend: Any) -> None:
    shutil.rmtree(backend.ref.id)


class WorkspaceFixtures:
    """What the suite needs of a backend whose environment is a folder."""

    kind: Any

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Any:
        return self.kind(tmp_path)

    @pytest.fixture
    def destructive_backend(self, tmp_path: Path) -> Callable[[], Any]:
        def make() -> Any:
            folder = tmp_path / "destructive"
            folder.mkdir()
            return self.kind(folder)

        return make

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], Any]:
        return lambda ref: self.kind(ref.id)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[Any], Awaitable[None]]:
        return destroy


class TestLaminaWorkspace(WorkspaceFixtures, WorkspaceBackendSuite):
    kind = LaminaWorkspaceBackend

    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        """It runs no commands. One of the tests that ask for this would notice it only after 30 seconds."""
        return False


class TestOfficialWorkspace(WorkspaceFixtures, WorkspaceBackendSuite):
    kind = LocalWorkspaceBackend


def test_nothing_outside_is_reached(tmp_path: Path) -> None:
    """Our workspace refuses more than the suite asks."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_text("secret", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / ".env").write_text("secret", encoding="utf-8")
    backend = LaminaWorkspaceBackend(root)
    for name in ("link", "../outside", ".env"):
        with pytest.raises(PermissionError):
            asyncio.run(backend.read_bytes(str(root / name)))
