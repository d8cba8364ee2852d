"""Many varied conversations, digests and shortened texts give the bytes that they gave before.

If one differs on purpose, `python -m tests.fixtures.fingerprints --show CASE` prints it, before and after.
"""

from __future__ import annotations

import json

import pytest

from tests.fixtures.fingerprints import KEPT, cases, fingerprint

CASES = cases()


@pytest.fixture(scope="module")
def kept() -> dict[str, list[str]]:
    fingerprints: dict[str, list[str]] = json.loads(KEPT.read_text("utf-8"))
    return fingerprints


@pytest.mark.parametrize("name", CASES)
def test_everything_about_a_request_is_as_it_was(name: str, kept: dict[str, list[str]]) -> None:
    fingerprints = fingerprint(CASES[name])
    assert fingerprints == kept[name]


def test_every_kept_case_is_tried(kept: dict[str, list[str]]) -> None:
    assert list(kept) == list(CASES)
