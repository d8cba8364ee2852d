from __future__ import annotations

import os
import signal
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


def test_a_server_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose parts crashed may never answer again, here as if it were stopped in its tracks."""
    monkeypatch.setattr(servers, "STOPPING", 0.05)
    with servers.postgres() as server:
        pid = server._pid  # noqa: SLF001
        os.kill(pid, signal.SIGSTOP)
    assert not server.folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_extension_that_this_processor_cannot_run_is_found_out() -> None:
    """What asks for it dies of an illegal instruction, here of a signal that is sent to it."""
    dying = "COPY (SELECT pg_backend_pid()) TO PROGRAM 'read pid; kill -ILL $pid'"
    with servers._cluster(servers.found()) as server:  # noqa: SLF001
        assert "SIGILL" in servers._fault_in(server, [dying])  # noqa: SLF001
        assert "no_such" in servers._fault_in(server, ["CREATE EXTENSION no_such"])  # noqa: SLF001
        assert servers._fault_in(server, ["SELECT 99 AS compared"]) == ""  # noqa: SLF001


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
