"""`python -m tools.open_responses --base-url URL`: run the cases of Open Responses on any server."""

from __future__ import annotations

import argparse
import json
import os
import sys

from lamina.testing.model_server import MODEL
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


def main() -> int:
    arguments = read_arguments()
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
    parser.add_argument(
        "--base-url", required=True, help="the address before /responses, such as http://127.0.0.1:8080/v1"
    )
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


def print_summary(results: list[CaseResult]) -> None:
    counts = count_results([*results, *list_not_applicable()])
    print(
        f"{counts['passed']}/{counts['total']} passed, "
        f"{counts['failed_by_schema']} failed by the schema alone, "
        f"{counts['not_applicable']} not applicable ({describe_types()})"
    )


if __name__ == "__main__":
    sys.exit(main())
