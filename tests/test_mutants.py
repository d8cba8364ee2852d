"""Mutants are made of decisions, and one that a test noticed by chance is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import mutants

SOURCE = '''"""Doubles."""


def double(number: int, *, most: int = 9) -> int:
    # Größe: letters of two bytes stand before the places that are changed
    if number >= most and not is_odd(number):
        return most - 1
    while True:
        break
    return number + number
'''


def test_every_decision_of_a_function_is_turned_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    file = tmp_path / "double.py"
    file.write_text(SOURCE, encoding="utf-8")
    changes = {(one.line, one.before.strip(), one.after.strip()) for one in mutants.find_mutants(file)}
    assert changes == {
        (6, ">=", ">"),
        (6, "and", "or"),
        (6, "not", ""),
        (7, "-", "+"),
        (7, "1", "2"),
        (7, "most - 1", "None"),
        (8, "True", "False"),
        (8, "True", "not (True)"),
        (9, "break", "continue"),
        (10, "+", "-"),
        (10, "number + number", "None"),
    }


def test_who_imports_a_name_from_the_room_is_near_the_file_that_defines_it() -> None:
    nearest = mutants.find_nearest_tests(Path("src/lamina/core/arrange.py"))
    assert "tests/core/test_reminders.py" in nearest
    assert "tests/core/test_kinds.py" not in nearest


def test_tests_that_fail_once_and_not_again_have_noticed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("src/lamina/caches/rules.py")

    def first_to_notice(*statuses: int) -> str:
        each = iter(statuses)
        monkeypatch.setattr(mutants, "_run_tests", lambda *_: next(each))
        return mutants._first_to_notice(tmp_path, path, reach="room")  # noqa: SLF001

    assert first_to_notice(1, 0, 0) == ""
    assert first_to_notice(mutants.NEVER_ENDED, 1) == "nearest"
    assert first_to_notice(1, mutants.NEVER_ENDED) == "nearest, without an end"
    assert first_to_notice(0, 1, 1) == "caches"


@pytest.mark.parametrize("room", mutants.ROOMS)
def test_every_room_has_tests_and_wider_ones(room: str) -> None:
    groups = [room, *mutants.WIDER_TESTS[room]]
    assert [group for group in groups if not (mutants.ROOT / "tests" / group).exists()] == []
