"""`python -m tools.open_responses`: run the cases of Open Responses on a server.

With --base-url they run on the server there. Without it a llama.cpp server is started, and they run on it
directly and through `lamina serve`; the status is 1 if the two differ.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from lamina.testing.model_server import MODEL, run_model_server
from tools.open_responses.calls import Api
from tools.open_responses.cases import CASES
from tools.open_responses.schema import describe_types
from tools.open_responses.suite import (
    CaseResult,
    count_results,
    describe_results,
    list_not_applicable,
    run_suite,
)

LOCAL_TOKENS = 32
"""Tokens that llama.cpp may answer. Its model is random, and would go on to the end of its window."""

WINDOW = 4096
PATIENCE = 60
"""Seconds in which the gateway must have started."""


def main() -> int:
    arguments = read_arguments()
    if not arguments.base_url:
        return compare_with_gateway(as_json=arguments.json)
    api = Api(
        arguments.base_url,
        arguments.model,
        api_key=arguments.api_key,
        max_output_tokens=arguments.max_output_tokens,
    )
    cases = [case for case in CASES if case.id in (arguments.only or case.id)]
    if arguments.json:
        results = run_suite(api, cases=cases)
        print(json.dumps(describe_results([*results, *list_not_applicable()]), indent=2))
    else:
        results = run_suite(api, cases=cases, report=print_result)
        for result in list_not_applicable():
            print_result(result)
        print_summary(results)
    return int(any(result.verdict == "failed" for result in results))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="open_responses", description=__doc__)
    parser.add_argument("--base-url", help="the address before /responses, such as http://127.0.0.1:8080/v1")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--api-key", default=os.environ.get("OPENAI_API_KEY", "none"))
    parser.add_argument("--max-output-tokens", type=int, default=0, help="sent with every request, if not 0")
    ids = [case.id for case in CASES]
    parser.add_argument("--only", action="append", choices=ids, metavar="ID", help="run this case; repeat it")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def print_result(result: CaseResult) -> None:
    notes = ""
    if result.notes:
        notes = f"   {result.notes[0]}"
    if len(result.notes) > 1:
        notes += f" (and {len(result.notes) - 1} more)"
    print(f"{result.verdict:6}  {result.id:25}{notes}".rstrip(), flush=True)


def print_summary(results: list[CaseResult], *, name: str = "") -> None:
    counts = count_results([*results, *list_not_applicable()])
    print(
        f"{name}{counts['passed']}/{counts['total']} passed, "
        f"{counts['failed_by_schema']} failed by the schema alone, "
        f"{counts['not_applicable']} not applicable ({describe_types()})"
    )


def compare_with_gateway(*, as_json: bool) -> int:
    """Run the cases on llama.cpp, and on the same server through the gateway."""
    with run_model_server(window=WINDOW) as server, serve_gateway(server.url) as gateway:
        limit = LOCAL_TOKENS
        directly = run_suite(Api(f"{server.url}/v1", MODEL, max_output_tokens=limit))
        through = run_suite(Api(f"{gateway}/v1", MODEL, max_output_tokens=limit))
    if as_json:
        described = {"directly": describe_results(directly), "through": describe_results(through)}
        print(json.dumps(described, indent=2))
    else:
        for result in [*directly, *list_not_applicable()]:
            print_result(result)
        print_summary(directly, name=f"llama.cpp of xllamacpp {version('xllamacpp')}: ")
        print_summary(through, name="the same through lamina serve: ")
    differing = [result.id for result in through if result not in directly]
    if differing:
        print(f"other results through the gateway: {', '.join(differing)}", file=sys.stderr)
    return int(bool(differing))


@contextmanager
def serve_gateway(upstream: str) -> Iterator[str]:
    """The address of `lamina serve` in front of an upstream."""
    port = find_free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "lamina", "serve", "--port", str(port)]
        command += ["--upstream", upstream, "--profile", "llama.cpp", "--window", str(WINDOW)]
        command += ["--store", str(Path(folder) / "gateway.db")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until_served(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def wait_until_served(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("lamina serve did not start")


if __name__ == "__main__":
    sys.exit(main())
