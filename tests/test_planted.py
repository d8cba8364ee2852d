"""One planted bug a law: each makes a mistake that the law forbids, and the law's property must find it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from lamina.core import Text, arrange, build, cut_moves, envelope, hashing, ledger, repair, wording
from lamina.core import orders as ladder
from lamina.core.laws import LAWS, Case
from lamina.core.ledger import Applied
from lamina.core.lowering import lower_entry, make_line
from lamina.core.references import ReferredLog
from lamina.core.text import user_words
from lamina.core.text.user_words import QuotedMessage, Talk
from lamina.core.values import Budget, Entry, Form, Ledger, Role
from lamina.segments import call, result, user
from lamina.testing.laws import holds, repeats
from lamina.testing.strategies import Story, stories

pytestmark = pytest.mark.hypothesis

Patch = Callable[[pytest.MonkeyPatch], None]

STORIES = 25
SEEDS = (0, 23, *range(800))
"""Stories of each seed, and seeds, the same ones each time: first those with which the rarest bugs show.

A search begins with small stories, the more of them the longer it is meant to be, and in those nothing is
cut. So many short searches find a bug sooner than one long one.
"""


def a_handle_that_changes(patch: pytest.MonkeyPatch) -> None:
    numbers = count()
    patch.setattr(wording, "handle", lambda _content: f"k{next(numbers)}")


def a_fit_that_forgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build, "cut_to_fit", lambda draft, _limits, _context: draft)
    unchecked(patch)


def a_ledger_that_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def ignored(entries: list[Entry], ledger_before: Ledger, **_rest: Any) -> Applied:
        emptied = msgspec.structs.replace(ledger_before, lines={}, folds=())
        return Applied(entries=entries, ledger=emptied)

    patch.setattr(arrange, "apply_ledger", ignored)
    unchecked(patch)


def a_change_that_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    a_ledger_that_is_ignored(patch)
    patch.setattr(build, "find_change", lambda *_args: "")


def a_call_that_nobody_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair.LogScan, "close", lambda scan: scan.waiting.clear())


def a_segment_that_disappears(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair.LogScan, "_omit", lambda *_args: None)


def a_name_that_forgets_the_content(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        hashing, "content_digest", lambda segment, _sent: hashing.digest((segment.kind, segment.attrs))
    )


def a_ladder_without_respect(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ladder, "goes_last", lambda _entry, _kinds: False)


def a_library_that_repeats(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(arrange, "refer_to_earlier", lambda entries, *_args, **_rest: ReferredLog(entries=entries))


def a_stub_that_grows(patch: pytest.MonkeyPatch) -> None:
    def unweighed(lowering: Any, move: Any) -> int:
        wording = lowering.context.wording
        entry = lowering.entries[move.at]
        lowered = lower_entry(entry, move.form, move.why, wording=wording, limit=move.limit)
        lowering.entries[move.at] = lowered
        lowering.lines[entry.ref] = make_line(lowered, limit=move.limit, cut=lowering.cut_number)
        return 1

    patch.setattr(cut_moves._Lowering, "take_one", unweighed)  # noqa: SLF001


def a_tidy_hand(patch: pytest.MonkeyPatch) -> None:
    true = arrange.word_entries

    def tidied(entries: Any, **rest: Any) -> Any:
        return [_tidy(entry) for entry in true(entries, **rest)]

    patch.setattr(arrange, "word_entries", tidied)


def _tidy(entry: Any) -> Any:
    if entry.form is not Form.FULL or entry.role is not Role.USER or not isinstance(entry.parts[0], Text):
        return entry
    return msgspec.structs.replace(entry, parts=(Text(entry.parts[0].text.title()),))


def a_tag_without_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wording, "guard", lambda body, *_args, **_rest: body)


def a_digest_that_keeps_the_first_words(patch: pytest.MonkeyPatch) -> None:
    def first(users: Talk, _room: int, **_rest: Any) -> dict[int, QuotedMessage]:
        return {at: QuotedMessage(message.text) for at, message in enumerate(users.messages[:1])}

    patch.setattr(user_words, "quote_messages", first)


def a_digest_of_another_conversation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "_is_valid_fold", lambda _fold, _log: True)
    unchecked(patch)


def unchecked(patch: pytest.MonkeyPatch) -> None:
    """Take the seal's own check away, so that the property has to find the bug."""
    patch.setattr(envelope, "check_laws", lambda *_args: None)


PLANTED: dict[str, Patch] = {
    "deterministic": a_handle_that_changes,
    "within_the_room": a_fit_that_forgets,
    "append_only_within_an_epoch": a_change_that_is_not_recorded,
    "forms_never_rise": a_ledger_that_is_ignored,
    "calls_and_results_pair": a_call_that_nobody_answers,
    "conservation": a_segment_that_disappears,
    "nothing_is_lost": a_name_that_forgets_the_content,
    "what_cannot_be_recovered_goes_last": a_ladder_without_respect,
    "once_in_full": a_library_that_repeats,
    "lowering_shrinks": a_stub_that_grows,
    "untouched_means_untouched": a_tidy_hand,
    "no_authority_is_gained": a_tag_without_guard,
    "what_the_user_said_is_not_lost_in_silence": a_digest_that_keeps_the_first_words,
    "nothing_crosses": a_digest_of_another_conversation,
}


def by_seed_alone(patch: pytest.MonkeyPatch) -> None:
    """Draw no constants of the modules that happen to be imported: a good seed would not stay one."""
    patch.setattr(providers, "_get_local_constants", Constants)
    patch.setattr(providers, "CONSTANTS_CACHE", LRUCache(1024))


def test_every_law_has_a_planted_bug() -> None:
    assert set(PLANTED) == set(LAWS)


@pytest.mark.parametrize(("law", "bug"), PLANTED.items())
def test_the_property_kills_the_bug(law: str, bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    by_seed_alone(monkeypatch)

    @settings(
        max_examples=STORIES, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(stories())
    def property_(story: Story) -> None:
        repeats(story) if law == "deterministic" else holds(law, story)

    def search() -> None:
        for number in SEEDS:
            seed(number)(property_)()

    with pytest.raises(AssertionError):
        search()


def test_one_result_that_grew_is_found_in_a_cut_that_freed_a_lot() -> None:
    log = [user("Read them.")]
    for number in range(6):
        log += [
            call("read_file", {"path": f"{number}.py"}, id=f"c{number}"),
            result(f"line {number}\n" * 100, id=f"c{number}", name="read_file"),
        ]
    built = build.build(log, budget=Budget(window=3_000, reserve=0, target=0.8))
    [lowered, *_] = [entry for entry in built.entries if entry.form is Form.COMPACT]
    grown = msgspec.structs.replace(lowered, parts=(*lowered.segment.parts, Text("And more.")))
    entries = tuple(grown if entry is lowered else entry for entry in built.entries)
    case = Case(log=tuple(log), envelope=msgspec.structs.replace(built, entries=entries))
    assert [lowered.ref in complaint for complaint in LAWS["lowering_shrinks"](case)] == [True]
