from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from lamina.errors import BadInput
from tests.servers import postgres as servers


def test_the_server_installed_for_tests_is_enough() -> None:
    """On a machine that has none of its own; and it comes back with what was committed to disk."""
    with servers.postgres(servers.carried()[0]) as server:
        with psycopg.connect(server.url) as link:
            link.execute("SET synchronous_commit = on")
            link.execute("CREATE TABLE kept AS SELECT 1 AS number")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url)
        server.start()
        with psycopg.connect(server.url) as link:
            assert link.execute("SELECT number FROM kept").fetchone() == (1,)
            assert link.execute("SHOW fsync").fetchone() == ("on",)
    assert not server.folder.exists()


def test_the_one_for_tests_is_found_where_the_machine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SYSTEM", Path("/nowhere"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert servers.found() == servers.carried()[0]


def test_a_machine_without_any_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_candidates", lambda: iter([Path("/nowhere")]))
    with pytest.raises(BadInput, match=r"no PostgreSQL server.*pip install"):
        servers.found()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lends the server to another account")
def test_programs_that_the_account_cannot_reach_are_copied() -> None:
    account = servers.Account(uid=65534, gid=65534)
    with TemporaryDirectory() as closed, TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = Path(closed) / "package" / "pginstall" / "bin" / "postgres"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\ncat "${0%/*}/../../../package.libs/version"\n')
        program.chmod(0o755)
        libraries = Path(closed) / "package.libs"
        libraries.mkdir()
        (libraries / "version").write_text("18")
        binaries = servers._usable(program.parent, Path(folder), account)  # noqa: SLF001
        command = [str(binaries / "postgres")]
        done = subprocess.run(command, check=True, capture_output=True, user=account.uid, cwd="/")
    assert done.stdout == b"18"
