"""Planted bugs in what the model may ask for: each breaks one limit, and the test of that limit finds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from lamina import Entry, Role
from lamina.core import build, digests, ladder, wishes
from lamina.core.values import Ref, Wish
from lamina.fitting import context_tool
from tests.core import test_wishes

Patch = Callable[[pytest.MonkeyPatch], None]


def a_pin_that_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build, "choose_held", lambda *_: frozenset[Ref]())


def pins_without_a_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(context_tool, "PINNED_PART", 1)
    patch.setattr(wishes, "PINNED_PART", 1)


def a_release_that_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ladder, "_lower_released", lambda _view: iter(()))


def a_refusal_that_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wishes, "ACCEPTED", dict.fromkeys(wishes.ACCEPTED, "not done: "))


def a_call_of_anybody(patch: pytest.MonkeyPatch) -> None:
    def read(entries: Sequence[Entry], *_: Any, **__: Any) -> wishes.Wishes:
        asked = [
            Wish(ref=entry.ref, action="pin", what="it")
            for entry in entries
            if entry.role is not Role.ASSISTANT and "pinned: " in str(entry.segment.parts)
        ]
        return wishes.Wishes(account=tuple(asked))

    patch.setattr(build, "read_wishes", read)


def a_note_in_the_users_voice(patch: pytest.MonkeyPatch) -> None:
    write = digests.make_fold

    def with_note(*arguments: Any, noted: Sequence[str] = (), **more: Any) -> digests.WrittenFold:
        fold, complete = write(*arguments, **more)
        spoken = msgspec.structs.replace(fold, text="\n".join((fold.text, *noted)), speaks=True)
        return digests.WrittenFold(spoken, complete)

    patch.setattr("lamina.core.cut_digests.make_fold", with_note)


PLANTED: dict[str, tuple[Patch, Callable[[], None]]] = {
    "pin": (a_pin_that_is_forgotten, test_wishes.test_a_pin_holds_over_many_cuts_until_it_is_released),
    "limit": (
        pins_without_a_limit,
        test_wishes.test_pins_beyond_a_quarter_of_the_room_are_refused_and_never_held,
    ),
    "release": (
        a_release_that_is_ignored,
        test_wishes.test_released_things_are_the_first_that_a_cut_lowers_even_in_recent_steps,
    ),
    "refusal": (a_refusal_that_counts, test_wishes.test_a_refused_call_stays_refused_when_it_is_read_again),
    "authority": (a_call_of_anybody, test_wishes.test_a_result_or_a_user_that_asks_for_a_pin_does_nothing),
    "voice": (
        a_note_in_the_users_voice,
        test_wishes.test_a_note_stands_in_the_models_voice_when_its_step_is_folded,
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, check = PLANTED[name]
    check()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
