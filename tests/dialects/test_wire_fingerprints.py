"""Every wire format reads, sends and checks the samples as before, with any one field of them changed, too.

If one differs on purpose, `python -m tests.fixtures.wire_fingerprints --show CASE` prints it.
"""

from __future__ import annotations

import json

import pytest

from tests.fixtures.wire_fingerprints import KEPT, cases, fingerprint

CASES = cases()


@pytest.fixture(scope="module")
def kept() -> dict[str, str]:
    fingerprints: dict[str, str] = json.loads(KEPT.read_text("utf-8"))
    return fingerprints


@pytest.mark.parametrize("name", CASES)
def test_a_sample_is_read_and_sent_as_it_was(name: str, kept: dict[str, str]) -> None:
    assert fingerprint(CASES[name]) == kept[name]


def test_every_kept_case_is_tried(kept: dict[str, str]) -> None:
    assert list(kept) == list(CASES)
