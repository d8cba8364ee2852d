"""Runs the tests of determinism, golden bytes, laws and text on every interpreter, and compares the bytes.

    python -m tools.matrix [PYTEST ARGUMENTS]

First every interpreter prints the digests of `tools.fingerprints`, which must all be equal; then each runs
the tests, one after the other. It fails if anything differs or fails, and says who was left out.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from tools.interpreters import ROOT, Environment, environments, interpreters, surroundings

TESTS = (
    "tests/test_determinism.py",
    "tests/test_golden.py",
    "tests/test_laws.py",
    "tests/core/text",
)


def main(arguments: Sequence[str]) -> int:
    found = list(environments(interpreters()))
    for environment in found:
        if environment.problem:
            print(f"Python {environment.interpreter.release} is left out: {environment.problem}")
    able = [environment for environment in found if not environment.problem]
    if not able:
        print("make: no interpreter has what lamina needs", file=sys.stderr)
        return 1
    differing = compared(able)
    failing = [environment.interpreter.release for environment in able if not passes(environment, arguments)]
    if failing:
        print(f"Tests failed on Python {', '.join(failing)}")
    return int(differing or bool(failing))


def compared(found: Sequence[Environment]) -> bool:
    """Whether two interpreters made different bytes; says of what."""
    made = {environment.interpreter.release: printed(environment) for environment in found}
    lines = differences(made)
    for line in lines:
        print(line)
    if not lines:
        count = len(next(iter(made.values())))
        print(f"{count} digests are equal on Python {', '.join(made)}", flush=True)
    return bool(lines)


def differences(made: Mapping[str, Mapping[str, str]]) -> list[str]:
    """For each thing whose digest is not the same everywhere, who has which."""
    named = dict.fromkeys(name for digests in made.values() for name in digests)
    found: list[str] = []
    for name in named:
        digests = {release: digests.get(name, "nothing") for release, digests in made.items()}
        if len(set(digests.values())) > 1:
            usual = Counter(digests.values()).most_common(1)[0][0]
            odd = [release for release, digest in digests.items() if digest != usual]
            found.append(f"{name}: different on Python {', '.join(odd)}")
    return found


def printed(environment: Environment, *options: str) -> dict[str, str]:
    """The digests of one interpreter, by name."""
    print(f"Making the digests on Python {environment.interpreter.release}", flush=True)
    run = subprocess.run(
        [environment.python, "-m", "tools.fingerprints", *options],
        cwd=ROOT, env=surroundings(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if run.returncode:
        return {"the script itself": run.stderr[-400:]}
    pairs = (line.split(" ", 1) for line in run.stdout.removesuffix("\n").split("\n"))
    return {name: digest for digest, name in pairs}


def passes(environment: Environment, arguments: Sequence[str]) -> bool:
    print(f"Running the tests on Python {environment.interpreter.release}", flush=True)
    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, *arguments]
    return subprocess.run(command, cwd=ROOT, env=surroundings(), check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
