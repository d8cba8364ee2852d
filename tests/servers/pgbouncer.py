"""A real PgBouncer in transaction mode in front of a test server, gone when the context ends."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.postgres import PATIENCE, Server

PORT = 6432


def find_pgbouncer() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def pgbouncer(server: Server, *, connections: int = 2) -> Iterator[str]:
    """The address of a pooler that has only so many connections to the server."""
    program = find_pgbouncer()
    if program is None:
        raise FileNotFoundError("pgbouncer")
    folder = server.folder / "pgbouncer"
    folder.mkdir()
    server.lend(folder)
    settings = folder / "settings.ini"
    settings.write_text(
        f"[databases]\npostgres = host={server.folder} user=lamina\n"
        f"[pgbouncer]\npool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 200\n"
        f"auth_type = any\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {folder}\n"
        f"logfile = {folder / 'log'}\npidfile = {folder / 'pid'}\n"
    )
    process = subprocess.Popen([program, "-q", str(settings)], **server.as_account())
    try:
        _wait_for(folder / f".s.PGSQL.{PORT}", process)
        yield f"postgresql://lamina@/postgres?host={folder}&port={PORT}"
    finally:
        process.terminate()
        process.wait(PATIENCE)
        shutil.rmtree(folder)


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError("PgBouncer did not start")
        time.sleep(0.02)
