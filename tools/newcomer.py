"""Does what a newcomer does in the first ten minutes, and fails where a newcomer would stop.

    python -m tools.newcomer                    on one interpreter of each Python that lamina supports
    python -m tools.newcomer --python 3.12      on this Python only

It builds the wheel from this checkout and makes an empty environment. There it types the first install line
of the README, with the folder of the wheel beside the index. It runs every command with and without `--help`.
Then it installs the packages that the pages name, and pastes every block of the README and the quickstart.
Each step must end without a traceback and without a warning: warnings are errors here. A command that needs
an extra must say so in one line.

Only the standard library is used. Nothing of this checkout can be imported in the environments, since every
step runs in another folder.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.docs import NOT_RUN, ROOT, fences
from tools.interpreters import Interpreter, interpreters

PAGES = ("README.md", "docs/quickstart.md")
SDK_LINE = "pip install openai"
"""What the blocks of the pages need."""

IMPORTS = 7
"""How often an import is timed. The quickest counts, since other programs only make it slower."""

_TIME_IMPORT = "import time; start = time.process_time(); import lamina; print(time.process_time() - start)"
_TROUBLE = re.compile(
    r"Traceback \(most recent call last\)|[A-Z][A-Za-z]*Warning\b|lamina: warning|bug in lamina"
)
_MEGABYTE = 1_000_000
_NOT_OURS = ("pip", "setuptools")

_REQUEST = '{"model": "gpt-4o", "messages": [{"role": "user", "content": "Read the client."}]}'
_SESSION = """\
{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s1","timestamp":"2026-11-01T10:00:00Z",\
"cwd":"/project","message":{"role":"user","content":"Read the client."}}
{"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"s1","timestamp":"2026-11-01T10:00:05Z",\
"requestId":"r1","cwd":"/project","message":{"id":"m1","type":"message","role":"assistant",\
"model":"claude-sonnet-5","content":[{"type":"text","text":"It sends parcels."}],"usage":\
{"input_tokens":2000,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":9}}}
"""
"""A session as Claude Code writes it, for the blocks that read sessions of one's own."""

COMMANDS = (
    "lamina --version",
    "lamina --help",
    "lamina fit request.json",
    "lamina fit request.json --check",
    "lamina fit request.json --explain",
    "lamina diff request.json request.json",
    "lamina cost .claude/projects",
    "lamina inspect .claude/projects --html inspect.html",
    "lamina store verify",
    "lamina log",
    "lamina recall support-42 kxetaad7gsndacyyb",
    "lamina doctor",
    "lamina doctor --all",
    "lamina run -- true",
    "lamina chat",
    "lamina chat --model gpt-5",
    "lamina chat --model claude-sonnet-5",
    "lamina chat --model gemini-3-pro",
    "lamina chat --model ollama/llama3.2",
    "lamina demo --once",
)
"""Every command, as someone types it who has not read its page."""


class Figures(NamedTuple):
    """What an installed lamina takes."""

    python: str
    seconds: float
    megabytes: float
    packages: int
    import_milliseconds: float


class Failed(Exception):
    """A step at which a newcomer would stop; the message says what was typed and what came."""


class Newcomer:
    """Someone with an empty environment and an empty home, who types what the pages say."""

    def __init__(self, interpreter: Interpreter, folder: Path) -> None:
        self.interpreter = interpreter
        self.home = folder / "home"
        self.environment = folder / "venv"
        self.home.mkdir(parents=True)
        project = self.home / ".claude" / "projects" / "-project"
        project.mkdir(parents=True)
        (project / "s1.jsonl").write_text(_SESSION, encoding="utf-8")
        (self.home / "request.json").write_text(_REQUEST, encoding="utf-8")
        (self.home / "tmp").mkdir()

    def make_environment(self) -> None:
        subprocess.run([self.interpreter.path, "-m", "venv", self.environment], check=True)

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def type_line(self, line: str, *, warnings: str = "error", lines: int = 0) -> str:
        """Type one line, and return what it prints. `lines` is how many lines a refusal may have; 0: none."""
        words = shlex.split(line, comments=True)
        run = subprocess.run(
            words, cwd=self.home, env=self._variables(warnings), capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=600,
        )  # fmt: skip
        printed = run.stdout + run.stderr
        if _TROUBLE.search(printed):
            raise Failed(f"{line}\n{printed}")
        if run.returncode and not 0 < len(run.stderr.splitlines()) <= lines:
            raise Failed(f"{line} ended with {run.returncode}\n{printed}")
        return printed

    def figures(self, seconds: float) -> Figures:
        """Measure what is installed."""
        times = []
        for _ in range(IMPORTS):
            run = subprocess.run(
                [self.python, "-c", _TIME_IMPORT],
                cwd=self.home,
                env=self._variables("ignore"),
                capture_output=True,
                text=True,
                check=True,
            )
            times.append(float(run.stdout.split()[-1]))
        names = _list_packages(self.environment)
        size = _measure_size(self.environment)
        milliseconds = min(times) * 1000
        return Figures(self.interpreter.release, seconds, size / _MEGABYTE, len(names), milliseconds)

    def _variables(self, warnings: str) -> dict[str, str]:
        """The variables of someone who has set none: no keys, no settings, no Python path."""
        taken_over = ("PIP_", "SSL_", "HTTP", "http", "https", "no_proxy", "NO_PROXY", "LANG", "REQUESTS_")
        variables = {name: value for name, value in os.environ.items() if name.startswith(taken_over)}
        variables["PATH"] = f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables["HOME"] = str(self.home)
        variables["TMPDIR"] = str(self.home / "tmp")
        variables["PYTHONWARNINGS"] = warnings
        variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        variables["PIP_NO_CACHE_DIR"] = "1"
        return variables


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Do what a newcomer does, on every Python that lamina supports."
    )
    parser.add_argument("--python", default="", help="only this one, such as 3.12")
    parser.add_argument("--extras", action="store_true", help="resolve every extra, too")
    options = parser.parse_args(arguments)
    chosen = _one_of_each(options.python)
    if not chosen:
        parser.error(
            f"there is no Python {options.python!r} here that lamina supports; give one such as 3.12"
        )
    all_figures: list[Figures] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        folder = Path(name)
        wheels = folder / "dist"
        for interpreter in chosen:
            newcomer = Newcomer(interpreter, folder / interpreter.release)
            newcomer.make_environment()
            if not wheels.exists():
                build_wheel(newcomer.python, wheels)
            for step, step_figures in meet_lamina(newcomer, wheels, extras=options.extras):
                print(f"Python {interpreter.release}: {step}", flush=True)
                all_figures += step_figures
                if step.startswith("failed"):
                    failures.append(step)
            shutil.rmtree(newcomer.environment)
    print()
    print("\n".join(format_figures(all_figures)))
    return 1 if failures or not all_figures else 0


def build_wheel(python: Path, wheels: Path) -> None:
    """Build the wheel of this checkout."""
    command = [
        str(python),
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(wheels),
        str(ROOT),
    ]
    subprocess.run(command, check=True)


def meet_lamina(newcomer: Newcomer, wheels: Path, *, extras: bool) -> Iterator[tuple[str, list[Figures]]]:
    """Do all steps on one Python. Yields what was done, or "failed: …", with the figures of the install."""
    first = read_install_lines()[0]
    start = time.monotonic()
    try:
        newcomer.type_line(with_wheels(first, wheels), warnings="ignore")
    except Failed as failure:
        yield f"failed: {failure}", []
        return
    figures = newcomer.figures(time.monotonic() - start)
    yield f"{first.partition('#')[0].strip()}: {figures.packages} packages", [figures]
    yield from _try_steps(
        newcomer, [*COMMANDS, *list_helps(newcomer)], "commands on the bare install", lines_of_refusal=2
    )
    newcomer.type_line(with_wheels(SDK_LINE, wheels), warnings="ignore")
    pages = " ".join(shlex.quote(str(ROOT / page)) for page in PAGES)
    tool = shlex.quote(str(ROOT / "tools" / "docs.py"))
    yield from _try_steps(newcomer, [f"python -P {tool} {pages}"], "the blocks of " + " and ".join(PAGES))
    yield from _try_steps(newcomer, list(read_shell_lines()), "the shell lines of the pages")
    yield from _meet_foreigner(newcomer, wheels)
    if extras:
        names = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        lines = [
            f"pip install 'lamina-context[{name}]'" for name in names["project"]["optional-dependencies"]
        ]
        dry_runs = [with_wheels(line, wheels) + " --dry-run --quiet" for line in lines]
        yield from _try_steps(newcomer, dry_runs, "every extra", warnings="ignore")


def _meet_foreigner(newcomer: Newcomer, wheels: Path) -> Iterator[tuple[str, list[Figures]]]:
    """Install another project's package `lamina` over this one: the doctor must name it."""
    wheel = write_foreign_wheel(wheels.parent)
    newcomer.type_line(f"pip install --quiet --no-deps {shlex.quote(str(wheel))}", warnings="ignore")
    try:
        newcomer.type_line("lamina doctor")
    except Failed as failure:
        if "lamina-physics 9.9 also installs a package called lamina" not in str(failure):
            yield f"failed: {failure}", []
            return
    else:
        yield "failed: lamina doctor found nothing wrong beside a foreign lamina", []
        return
    yield "a foreign package lamina is named by the doctor", []


def write_foreign_wheel(folder: Path) -> Path:
    """A wheel of another project whose package is called `lamina`, too."""
    wheel = folder / "lamina_physics-9.9-py3-none-any.whl"
    info = "lamina_physics-9.9.dist-info"
    files = {
        "lamina/__init__.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: lamina-physics\nVersion: 9.9\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/top_level.txt": "lamina\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return wheel


def _try_steps(
    newcomer: Newcomer, lines: Sequence[str], what: str, *, lines_of_refusal: int = 0, warnings: str = "error"
) -> Iterator[tuple[str, list[Figures]]]:
    start = time.monotonic()
    for line in lines:
        try:
            newcomer.type_line(line, lines=lines_of_refusal, warnings=warnings)
        except Failed as failure:
            yield f"failed: {failure}", []
    yield f"{what}: {len(lines)} lines in {time.monotonic() - start:.0f} s", []


def read_install_lines() -> list[str]:
    """The lines of the README that begin with `pip install`, without their remarks."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    return [line.partition("#")[0].rstrip() for line in lines if line.startswith("pip install ")]


def read_shell_lines() -> Iterator[str]:
    """The other lines of shell blocks, with `~` as the home of whoever types them."""
    for page in PAGES:
        lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
        for fence in fences(lines, page):
            is_left_out = any(NOT_RUN in line for line in fence.between)
            for line in lines[fence.start : fence.end]:
                if fence.language == "sh" and not is_left_out and not line.startswith("pip install "):
                    yield line.replace("~/", "")


def with_wheels(line: str, wheels: Path) -> str:
    """An install line that finds the wheel of this checkout, and no other lamina."""
    wheel = next(wheels.glob("lamina_context-*.whl"))
    version = wheel.name.split("-")[1]
    constraint = wheels / "constraint.txt"
    constraint.write_text(f"lamina-context=={version}\n", encoding="utf-8")
    options = ["--quiet", "--find-links", str(wheels), "--constraint", str(constraint)]
    return f"{line} {shlex.join(options)}"


def list_helps(newcomer: Newcomer) -> list[str]:
    """Return `lamina COMMAND --help` for every command that `lamina --help` lists."""
    listing = newcomer.type_line("lamina --help")
    _, _, commands = listing.partition("start:\n")
    names = re.findall(r"^  ([a-z]+)(?:  |$)", commands.partition("examples:")[0], re.MULTILINE)
    if not names:
        raise Failed(f"lamina --help lists no commands:\n{listing}")
    return [f"lamina {name} --help" for name in names]


def format_figures(figures: Sequence[Figures]) -> Iterator[str]:
    """A Markdown table."""
    yield "| Python | seconds to install | MB | packages | CPU of the import, ms |"
    yield "|---|--:|--:|--:|--:|"
    for each in figures:
        yield (
            f"| {each.python} | {each.seconds:.0f} | {each.megabytes:.0f} | {each.packages} "
            f"| {each.import_milliseconds:.0f} |"
        )


def _one_of_each(release: str) -> list[Interpreter]:
    """The oldest interpreter of each minor version, or of one only."""
    by_minor: dict[str, Interpreter] = {}
    for interpreter in interpreters():
        minor = interpreter.release.rpartition(".")[0]
        if interpreter.release.startswith(release):
            by_minor.setdefault(minor, interpreter)
    return list(by_minor.values())


def _list_packages(environment: Path) -> list[str]:
    """The names of the installed packages, without those of every environment."""
    folders = environment.glob("lib/python*/site-packages/*.dist-info")
    names = [folder.name.partition("-")[0] for folder in folders]
    return [name for name in names if name not in _NOT_OURS]


def _measure_size(environment: Path) -> int:
    """The bytes of everything that was installed, compiled files included, without pip."""
    size = 0
    for packages in environment.glob("lib/python*/site-packages"):
        for entry in packages.iterdir():
            if entry.name.partition("-")[0] not in (*_NOT_OURS, "pkg_resources", "_distutils_hack"):
                paths = [entry, *entry.rglob("*")]
                size += sum(path.stat().st_size for path in paths if path.is_file())
    return size


if __name__ == "__main__":
    sys.exit(main())
