"""Runs the cases on one server, and says which of them passed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from tools.open_responses.calls import Api
from tools.open_responses.cases import CASES, NOT_APPLICABLE, ComplianceCase, NotServed
from tools.open_responses.schema import MARK

Verdict = Literal["passed", "failed", "n/a"]


class CaseResult(NamedTuple):
    """What came of one case. `notes` are the problems of one that failed, or why it does not apply."""

    id: str
    verdict: Verdict
    notes: tuple[str, ...] = ()

    @property
    def fails_by_schema(self) -> bool:
        """Whether the server does what the case is about, and only the shape of its answers is wrong."""
        return self.verdict == "failed" and all(note.startswith(MARK) for note in self.notes)


def run_suite(
    api: Api,
    *,
    cases: Sequence[ComplianceCase] = CASES,
    report: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Run the cases one after the other. `report` gets each result as soon as it is there."""
    results: list[CaseResult] = []
    for case in cases:
        results.append(run_case(case, api))
        if report is not None:
            report(results[-1])
    return results


def run_case(case: ComplianceCase, api: Api) -> CaseResult:
    try:
        problems = case.ask(api)
    except NotServed as reason:
        return CaseResult(case.id, "n/a", (str(reason),))
    except OSError as error:
        problems = [f"the server cannot be asked: {error}"]
    if problems:
        return CaseResult(case.id, "failed", tuple(problems))
    return CaseResult(case.id, "passed")


def list_not_applicable() -> list[CaseResult]:
    """The cases of the official runner that are not asked."""
    return [CaseResult(case_id, "n/a", (reason,)) for case_id, reason in NOT_APPLICABLE.items()]


def count_results(results: Sequence[CaseResult]) -> dict[str, int]:
    """How many cases passed, of how many that apply, and how many do not.

    `failed_by_schema` are those that failed for the shape of the answers alone.
    """
    passed = sum(result.verdict == "passed" for result in results)
    by_schema = sum(result.fails_by_schema for result in results)
    outside = sum(result.verdict == "n/a" for result in results)
    total = len(results) - outside
    return {"passed": passed, "total": total, "failed_by_schema": by_schema, "not_applicable": outside}


def describe_results(results: Sequence[CaseResult]) -> dict[str, Any]:
    """The results as JSON."""
    return {"summary": count_results(results), "cases": [result._asdict() for result in results]}
