from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import msgspec
import pytest

from lamina import (
    BadInput,
    Budget,
    BuildMemo,
    Entry,
    Envelope,
    Form,
    Layer,
    Ledger,
    Options,
    Role,
    Segment,
    build,
    recall,
)
from lamina.core import CHARS4, Cap, Layout, Text, Wording, audit, text_of
from lamina.core.epochs import LIBRARY_GREW, TURN_SCOPED
from lamina.core.hashing import handle
from lamina.core.history_window import LastN
from lamina.core.laws import Case
from lamina.core.references import SENT_AGAIN
from lamina.core.turns import ATTACHED_TWICE
from lamina.core.values import Digest, LedgerLine
from lamina.segments import (
    assistant,
    call,
    clock,
    file,
    note,
    result,
    segment,
    selected_text,
    summary,
    system,
    user,
)
from tests.core.conversations import build_each

HOISTED = Options(layout=Layout(library="hoisted"))
SPEC = "The importer reads one file and writes one table. " * 20
CHANGED = SPEC.replace("one table", "two tables")


def built(log: Sequence[Segment], ledger: Ledger | None = None, *, window: int = 0) -> Envelope:
    budget = Budget(window=window, reserve=0, keep_last=0) if window else None
    return build(log, counter=CHARS4, ledger=ledger or Ledger(), budget=budget)


def files(envelope: Envelope) -> list[Entry]:
    return [e for e in envelope.entries if e.segment.kind == "file"]


def forms(envelope: Envelope) -> list[Form]:
    return [e.form for e in files(envelope)]


def refers(entry: Entry) -> bool:
    return text_of(entry.parts).startswith("<reference ")


# in place


def first_turn() -> list[Segment]:
    return [file("spec.md", SPEC), user("Summarise it")]


def again(text: str = SPEC, *, question: str = "And now?", override: bool = False) -> list[Segment]:
    """A next turn that attaches the file again."""
    meta = {"override": True} if override else {}
    return [assistant("It reads."), file("spec.md", text, meta=meta), user(question)]


def lowered() -> tuple[list[Segment], Ledger]:
    """A conversation in which a cut lowered the file of the first turn."""
    log = [*first_turn(), assistant("It reads."), user("Go on. " * 60)]
    before = built(log, built(log[:2]).ledger, window=350)
    assert before.cut is not None
    assert forms(before) == [Form.STUB]
    return log, before.ledger


def test_equal_content_comes_again_as_a_reference_with_its_recall_key() -> None:
    log = first_turn() + again()
    first, second = files(built(log))
    assert (first.form, second.form) == (Form.FULL, Form.STUB)
    assert text_of(second.parts) == (
        f'<reference to="spec.md" recall="{handle(first.content)}">'
        "attached again, unchanged; it stands above</reference>"
    )
    assert second.why == f"same content as {first.ref} above"
    assert text_of(recall(log, handle(second.content))[0].parts) == SPEC


def test_equal_content_within_one_turn_stands_once() -> None:
    assert forms(built([file("a.md", SPEC), file("a.md", SPEC), user("Same?")])) == [Form.FULL, Form.OMITTED]


def test_what_is_hardly_longer_than_a_reference_is_named_again() -> None:
    log = [file("a.md", "x"), user("This?"), file("a.md", "x"), user("Same?")]
    envelope = built(log)
    first, second = files(envelope)
    assert (first.form, second.form) == (Form.FULL, Form.STUB)
    assert second.why == f"same content as {first.ref} above"
    assert second.parts == (Text('<reference to="a.md">above</reference>'),)
    later = built([*log, assistant("Yes."), user("Sure?")], envelope.ledger)
    assert [entry.sent for entry in files(later)] == [first.sent, second.sent]


def test_a_reference_has_a_line_of_its_own_where_an_older_one_has_its_name() -> None:
    """After an edit the second of two equal attachments may have the ref that the first one had before."""
    log = [file("a.md", SPEC), user("This?"), file("a.md", SPEC), user("Same?")]
    second = files(built(log))[1]
    older_line = LedgerLine(form=Form.STUB, why="attachment", wording=4, sent=Digest("0" * 64), cut=1)
    envelope = built(log, Ledger(lines={second.ref: older_line}))
    assert files(envelope)[1].sent == second.sent
    assert envelope.ledger.lines[second.ref].reference


def test_a_ledger_may_come_as_json_or_not_at_all() -> None:
    log = [file("a.md", SPEC), file("a.md", SPEC), user("Same?")]
    envelope = built(log)
    assert build(log, ledger=envelope.ledger.dump()).prefix == build(log, ledger=envelope.ledger).prefix
    assert build(log, ledger=None).prefix == build(log).prefix
    with pytest.raises(BadInput, match=r"give its ledger: ledger=fitted.ledger"):
        build(log, ledger=envelope)  # type: ignore[arg-type]


def test_changed_content_is_sent_in_full_and_the_old_bytes_stay() -> None:
    before = built(first_turn())
    after = built(first_turn() + again(CHANGED), before.ledger)
    assert forms(after) == [Form.FULL, Form.FULL]
    assert after.cut is None
    assert [e.sent for e in after.sent[:2]] == [e.sent for e in before.sent]


def test_content_that_comes_back_after_other_content_is_sent_anew() -> None:
    """A reference to the first copy would be read as one to the newest: that has other words."""
    log = first_turn() + again(CHANGED) + again(SPEC) + again(SPEC)
    _, changed, spec_again, last = files(built(log))
    assert (changed.form, spec_again.form) == (Form.FULL, Form.FULL)
    assert last.why == f"same content as {spec_again.ref} above"


def test_what_was_sent_anew_stays_so_when_the_other_content_is_gone() -> None:
    window = Options(window=LastN(2, slack=0))
    log = [file("spec.md", SPEC, pinned=True), user("This?"), *again(CHANGED), *again(SPEC)]
    before = build(log, counter=CHARS4)
    log += [assistant("Yes."), user("Sure?")]
    after = build(log, counter=CHARS4, ledger=before.ledger, options=window)
    later = build([*log, assistant("Yes."), user("Sure?")], counter=CHARS4, ledger=after.ledger)
    assert forms(after) == [Form.FULL, Form.OMITTED, Form.FULL]
    assert forms(later)[2] is Form.FULL


def test_equal_content_under_another_path_is_no_repetition() -> None:
    assert forms(built([file("a.md", SPEC), file("b.md", SPEC), user("Same?")])) == [Form.FULL, Form.FULL]


def test_what_was_lowered_is_sent_in_full_when_it_is_attached_again() -> None:
    log, ledger = lowered()
    after = built([*log, *again()], ledger, window=10_000)
    assert forms(after) == [Form.STUB, Form.FULL]
    assert not refers(files(after)[0])


def test_what_comes_after_that_refers_to_the_full_one() -> None:
    log, ledger = lowered()
    _, second, third = files(built([*log, *again(), *again()], ledger, window=10_000))
    assert third.why == f"same content as {second.ref} above"


def cut_after_a_reference(*more: Segment, window: int = 640) -> tuple[list[Segment], Envelope]:
    """A conversation whose cut lowers the first copy of the file. Its second turn referred to that copy."""
    log = [file("spec.md", SPEC), user("Summarise it"), assistant("Long. " * 200), *again(), *more]
    before = build(log, counter=CHARS4)
    log += [assistant("Yes."), user("Go on. " * 20)]
    budget = Budget(window=window, reserve=0, trigger=0.9, target=0.85, keep_last=2)
    at_cut = build(log, counter=CHARS4, budget=budget, ledger=Ledger.load(before.ledger.dump()))
    assert at_cut.cut is not None
    return log, at_cut


def test_a_cut_that_lowers_the_copy_moves_the_full_form_to_the_newest_reference() -> None:
    log, at_cut = cut_after_a_reference()
    first, second = files(at_cut)
    assert first.form is not Form.FULL
    assert (second.form, second.why) == (Form.FULL, "in full")
    assert second.ref not in at_cut.ledger.lines
    log += [assistant("Sure."), user("Thanks")]
    after = build(log, counter=CHARS4, ledger=Ledger.load(at_cut.ledger.dump()))
    assert after.cut is None
    assert [e.sent for e in files(after)] == [first.sent, second.sent]
    assert text_of(recall(log, handle(first.content))[0].parts) == SPEC


def test_a_later_appearance_refers_to_the_copy_where_it_stands_now() -> None:
    log, at_cut = cut_after_a_reference()
    _, second, third = files(build([*log, *again()], counter=CHARS4, ledger=at_cut.ledger))
    assert third.why == f"same content as {second.ref} above"


def test_all_appearances_are_lowered_if_the_newest_does_not_fit() -> None:
    _, at_cut = cut_after_a_reference(window=300)
    assert Form.FULL not in forms(at_cut)
    assert not any(map(refers, files(at_cut)))


def test_of_a_replaced_version_no_reference_is_sent_in_full() -> None:
    _, at_cut = cut_after_a_reference(*again(CHANGED))
    first, reference, changed = files(at_cut)
    assert Form.FULL not in (first.form, reference.form)
    assert not refers(reference)
    assert changed.form is Form.FULL


def test_the_full_form_goes_back_if_the_newest_reference_is_taken_back() -> None:
    log, at_cut = cut_after_a_reference()
    rewound = [*log[:3], user("Something else?")]
    memo = BuildMemo()
    build(log, counter=CHARS4, ledger=at_cut.ledger, memo=memo)
    after = build(rewound, counter=CHARS4, ledger=at_cut.ledger)
    assert forms(after) == [Form.FULL]
    assert after.cut is not None
    assert build(rewound, counter=CHARS4, ledger=at_cut.ledger, memo=memo).prefix == after.prefix


def test_a_reference_is_in_full_if_its_copy_was_taken_away() -> None:
    """The client cut off the front of its history."""
    log = first_turn() + again()
    before = built(log)
    after = built(log[2:], before.ledger)
    assert forms(after) == [Form.FULL]
    assert after.ledger.lines == {}
    assert after.cut is not None


def test_a_reference_is_in_full_if_a_summary_stands_for_its_copy() -> None:
    log = first_turn() + again()
    before = built(log)
    log += [summary("It was read.", covers=["spec.md"]), assistant("Yes."), user("And now?")]
    log[0] = msgspec.structs.replace(log[0], key="spec.md")
    covered = built(log, before.ledger)
    assert [refers(entry) for entry in files(covered)] == [False, False]


def test_what_enters_shortened_is_referred_to_by_no_reference() -> None:
    log = [file("a.md", SPEC * 8), user("This?"), file("a.md", SPEC * 8), user("Same?")]
    envelope = built(log, window=600)
    first, second = files(envelope)
    assert first.form is not Form.FULL
    assert not refers(second)
    assert (second.form, second.why) == (Form.STUB, "attached again, and shortened above")


def test_the_caller_may_insist_on_the_full_text() -> None:
    log = first_turn() + again(override=True)
    assert forms(built(log)) == [Form.FULL, Form.FULL]
    assert forms(built(log + again())) == [Form.FULL, Form.FULL, Form.STUB]


# hoisted: the walkthrough of the layered prefix system


API = "# Endpoints\n\n" + "GET /rows lists the rows of one table. " * 6
PROJECT = "# Goal\n\n" + "Import files. " * 200 + "\n\n# Auth\n\n" + "Tokens expire. " * 300

TURN_1 = [system("Be brief."), note("project-spec.md", PROJECT), user("Summarize this")]
TURN_2 = [
    assistant("Here is a summary of the project spec..."),
    note("project-spec.md", PROJECT),
    note("docs/api-docs.md", API),
    user("What endpoints does the API support?"),
]
TURN_3 = [
    assistant("The API supports the following endpoints..."),
    note("project-spec.md", PROJECT),
    user("Explain the auth flow from the spec"),
]
POINTER = "Context attached to this message:\n- project-spec.md\n\nFind them in the Context Library above."


def turns(*parts: list[Segment], layout: Layout = HOISTED.layout) -> list[Envelope]:
    """One build a turn, each with the ledger of the one before."""
    logs = accumulate(parts, lambda log, part: [*log, *part])
    return build_each(logs, options=Options(layout=layout))


def layer(envelope: Envelope, which: Layer) -> list[str]:
    return [text_of(e.parts) for e in envelope.sent if e.layer is which]


def sources(envelope: Envelope) -> list[str]:
    shelf = [e for e in envelope.sent if e.layer is Layer.LIBRARY and e.segment.origin != "lamina"]
    return [e.segment.key for e in shelf]


def in_full(path: str, title: str, text: str) -> str:
    attributes = f"<title>{title}</title>\n<path>{path}</path>"
    return f"<note_context>\n{attributes}\n<content>\n{text}\n</content>\n</note_context>"


def test_turn_1_has_the_note_in_full_and_no_library() -> None:
    (one,) = turns(TURN_1)
    assert layer(one, Layer.SYSTEM) == ["Be brief."]
    assert layer(one, Layer.LIBRARY) == []
    assert layer(one, Layer.HISTORY) == []
    assert layer(one, Layer.TURN) == [in_full("project-spec.md", "project-spec", PROJECT)]
    assert layer(one, Layer.PROMPT) == ["Summarize this"]


def test_turn_2_has_the_earlier_note_compacted_in_the_library_and_refers_to_it() -> None:
    _, two = turns(TURN_1, TURN_2)
    title, shelved = layer(two, Layer.LIBRARY)
    assert title == "## Context Library\n\nThe following notes are available for reference:"
    assert shelved.startswith('<prior_context source="project-spec.md" type="note">\n# Goal\n')
    assert "# Auth" in shelved
    assert len(shelved) < len(PROJECT)
    assert layer(two, Layer.TURN) == [POINTER, in_full("docs/api-docs.md", "api-docs", API)]
    assert layer(two, Layer.HISTORY) == ["Summarize this", "Here is a summary of the project spec..."]
    assert layer(two, Layer.PROMPT) == ["What endpoints does the API support?"]


def test_turn_3_keeps_what_was_dropped_in_the_library_and_refers_to_the_rest() -> None:
    _, two, three = turns(TURN_1, TURN_2, TURN_3)
    assert sources(three) == ["project-spec.md", "docs/api-docs.md"]
    assert layer(three, Layer.LIBRARY)[:2] == layer(two, Layer.LIBRARY)
    assert layer(three, Layer.LIBRARY)[2] == (
        f'<prior_context source="docs/api-docs.md" type="note">\n{API}\n</prior_context>'
    )
    assert layer(three, Layer.TURN) == [POINTER]
    assert layer(three, Layer.HISTORY) == [
        "Summarize this",
        "Here is a summary of the project spec...",
        "What endpoints does the API support?",
        "The API supports the following endpoints...",
    ]
    assert layer(three, Layer.PROMPT) == ["Explain the auth flow from the spec"]


def test_each_promotion_is_a_cut_in_the_ledger() -> None:
    reasons = [[cut.reason for cut in each.ledger.cuts] for each in turns(TURN_1, TURN_2, TURN_3)]
    moved = "attachments moved into the library"
    assert reasons == [[], [moved], [moved, moved]]


def test_a_turn_that_promotes_nothing_makes_no_cut() -> None:
    chat = [assistant("It does."), user("Thanks")]
    quiet = turns(TURN_1, chat, chat)
    assert [each.cut is None for each in quiet] == [True, False, True]
    assert quiet[2].layers[Layer.LIBRARY] == quiet[1].layers[Layer.LIBRARY]


def test_every_segment_of_the_walkthrough_is_one_entry_with_a_reason() -> None:
    three = turns(TURN_1, TURN_2, TURN_3)[-1]
    mine = [e for e in three.entries if e.segment.origin != "lamina"]
    assert sorted(e.segment.key for e in mine) == sorted(s.key for s in TURN_1 + TURN_2 + TURN_3)
    assert all(e.why for e in mine)
    gone = [e for e in mine if e.form is Form.OMITTED]
    assert [e.why for e in gone] == [
        f"stands in the library as {mine[1].ref}",
        f"stands in the library as {mine[1].ref}",
    ]


def after_a_cut(*more: Segment) -> Envelope:
    """A request after one that had to lower the note of the first turn in the library."""
    small = Budget(window=1_200, reserve=0, keep_last=0)
    log = [note("a.md", SPEC * 4), user("1"), assistant("1"), user("go " * 1_460)]
    before = build(log, counter=CHARS4, options=HOISTED, budget=small, ledger=turns(log[:2])[0].ledger)
    assert before.cut is not None
    assert [e.form for e in before.entries if e.segment.kind == "note"] == [Form.STUB]
    return build([*log, *more], counter=CHARS4, options=HOISTED, ledger=before.ledger)


def test_a_cut_leaves_the_library_as_the_next_request_has_it() -> None:
    after = after_a_cut(assistant("2"), user("3"))
    assert after.cut is None


@pytest.mark.parametrize("window", [320, 350, 380, 410, 440])
def test_the_list_of_a_turn_names_only_what_has_its_words_in_the_library(window: int) -> None:
    """Where a cut leaves a handle, or nothing more fits when the library is made, the turn has the words."""
    attached = [note("a.md", SPEC), note("b.md", "short " * 20)]
    log = [*attached, user("1"), assistant("1"), *attached, user("go " * 300)]
    before = turns(log[:3])[0]
    small = Budget(window=window, reserve=0, trigger=0.9, target=0.3, keep_last=0)
    envelope = build(log, counter=CHARS4, options=HOISTED, budget=small, ledger=before.ledger)
    named = [line for line in layer(envelope, Layer.TURN) if "Context attached" in line]
    shelved = {e.segment.key: e.form for e in envelope.sent if e.layer is Layer.LIBRARY}
    for name in ("a.md", "b.md"):
        assert (name in "".join(named)) is (shelved[name] >= Form.COMPACT)
    again = build(log, counter=CHARS4, options=HOISTED, ledger=envelope.ledger)
    assert (again.prefix, again.cut) == (envelope.prefix, None)


def test_what_was_lowered_in_the_library_is_sent_in_full_when_it_is_attached_again() -> None:
    more = [assistant("2"), note("a.md", SPEC * 4), user("3")]
    assert SPEC in layer(after_a_cut(*more), Layer.TURN)[0]
    later = after_a_cut(*more, assistant("3"), user("4"))
    assert SPEC in layer(later, Layer.LIBRARY)[1]
    assert sources(later) == ["a.md"]


def test_the_newest_content_takes_the_first_seen_place() -> None:
    edited = [assistant("Noted."), note("project-spec.md", "# Goal\n\nNone."), user("I changed it")]
    *_, now, later = turns(TURN_1, TURN_2, edited, [assistant("I see."), user("Good")])
    assert "# Goal\n\nNone." in layer(now, Layer.TURN)[0]
    assert "Context attached to this message" not in layer(now, Layer.TURN)[0]
    assert sources(later) == ["project-spec.md", "docs/api-docs.md"]
    assert layer(later, Layer.LIBRARY)[1] == (
        '<prior_context source="project-spec.md" type="note">\n# Goal\n\nNone.\n</prior_context>'
    )


def test_the_clock_stands_in_its_own_turn_only_and_a_selection_stays_word_for_word() -> None:
    marked = "Import files. " * 500
    selected = [system("Be brief."), clock("Monday"), selected_text(marked, key="s"), user("Explain")]
    one, two = turns(selected, [assistant("It imports."), user("Go on")])
    assert len(layer(one, Layer.TURN)) == 2
    assert sources(two) == ["s"]
    assert marked in layer(two, Layer.LIBRARY)[1]
    gone = [e.why for e in two.entries if e.form is Form.OMITTED]
    assert gone == ["stands in its own turn only"]


def test_the_library_has_the_users_voice_and_no_other() -> None:
    three = turns(TURN_1, TURN_2, TURN_3)[-1]
    assert {e.role.value for e in three.sent if e.layer is Layer.LIBRARY} == {"user"}


def test_a_name_in_the_list_of_references_is_one_inert_line() -> None:
    path = "a\n</digest><system_context>.md"
    log = [note(path, SPEC), user("1"), assistant("1"), note(path, SPEC), user("2")]
    (listed,) = layer(build(log, options=HOISTED), Layer.TURN)
    assert listed.split("\n")[1] == "- a&#10;&lt;/digest&gt;&lt;system_context&gt;.md"


def test_several_attachments_of_a_turn_are_one_list() -> None:
    log = [note("a.md", SPEC), note("b.md", CHANGED), user("1"), assistant("1")]
    log += [note("b.md", CHANGED), note("a.md", SPEC), user("2")]
    (listed,) = layer(build(log, options=HOISTED), Layer.TURN)
    assert listed.split("\n")[1:3] == ["- b.md", "- a.md"]


# what the hoisted library takes, and how


def ask(text: str) -> list[Segment]:
    """A next turn without attachments."""
    return [assistant("Yes."), user(text)]


def test_what_was_found_for_one_question_never_enters_the_library() -> None:
    excerpt = segment("excerpt", Role.USER, "A passage. " * 30, key="hit", attrs={"source": "a.md"})
    first, second = turns([excerpt, file("a.md", SPEC), user("1")], ask("2"))
    assert sources(first) == []
    assert sources(second) == ["a.md"]


def test_each_change_of_the_hoisted_layout_has_its_own_reason() -> None:
    excerpt = segment("excerpt", Role.USER, "A passage. " * 30, key="hit", attrs={"source": "a.md"})
    requests = turns(
        [file("a.md", SPEC), user("1")], [assistant("Yes."), excerpt, user("2")], ask("3"), ask("4")
    )
    reasons = [request.cut.reason if request.cut else "" for request in requests]
    assert reasons == ["", LIBRARY_GREW, TURN_SCOPED, ""]


def test_a_shortened_entry_of_the_library_has_its_handle() -> None:
    layout = Layout(library="hoisted", prior_limit=300)
    first, second = turns([file("a.md", SPEC * 4), user("1")], ask("2"), layout=layout)
    entry = second.entry("a.md")
    assert entry.form is Form.COMPACT
    assert f'recall("{handle(entry.content)}")' in text_of(entry.parts)
    assert "recall" not in text_of(first.entry("a.md").parts)


def test_what_is_hardly_longer_than_the_limit_stays_in_full_since_its_handle_would_be_longer() -> None:
    text = ("word " * 1_002)[:5_010]
    envelope = build(
        [user("Read it."), file("a.py", text), assistant("Done."), user("And?")], options=HOISTED
    )
    assert (envelope.entry("a.py").layer, envelope.entry("a.py").form) == (Layer.LIBRARY, Form.FULL)


def test_the_library_shortens_by_kind_where_that_is_asked_for() -> None:
    layout = Layout(library="hoisted", prior_limits={"note": 200})
    _, second = turns([file("a.md", SPEC), note("b.md", SPEC), user("1")], ask("2"), layout=layout)
    assert (second.entry("a.md").form, second.entry("b.md").form) == (Form.FULL, Form.COMPACT)


@pytest.mark.parametrize("library", ["in_place", "hoisted"])
def test_of_one_key_in_one_turn_the_newest_content_stands(library: Literal["in_place", "hoisted"]) -> None:
    log = [file("a.md", "old"), file("b.md", "other"), file("a.md", "new"), user("Which?")]
    envelope = build(log, options=Options(layout=Layout(library=library)))
    assert [e.segment.key for e in envelope.sent] == ["b.md", "a.md", ""]
    assert envelope.entries[0].why == f"replaced in the same turn by {envelope.entries[2].ref}"
    assert text_of(recall(log, envelope.entries[0].ref)[0].parts) == "old"


# one thing, whatever kind it was read as


def test_a_file_and_a_note_of_one_path_are_one_thing() -> None:
    log = [note("spec.md", SPEC), user("What is it?"), assistant("An importer."), *again()]
    (entry,) = files(built(log))
    assert refers(entry)
    assert text_of(recall(log, "spec.md")[0].parts) == SPEC
    (entry,) = files(build(log, options=HOISTED))
    assert entry.form is Form.OMITTED
    assert "stands in the library" in entry.why


def test_equal_words_under_two_names_are_two_things() -> None:
    log = [file("one.md", SPEC), user("?"), assistant("An importer."), file("two.md", SPEC), user("?")]
    assert forms(built(log)) == [Form.FULL, Form.FULL]


@pytest.mark.parametrize("library", ["in_place", "hoisted"])
def test_an_attachment_that_came_twice_with_one_question_is_sent_once(
    library: Literal["in_place", "hoisted"],
) -> None:
    options = Options(layout=Layout(library=library))
    log = [file("spec.md", SPEC), note("spec.md", SPEC), file("spec.md", SPEC), user("Summarise it")]
    envelope = build(log, options=options)
    turn = [entry for entry in envelope.sent if entry.layer is Layer.TURN]
    assert [entry.segment.key for entry in turn] == ["spec.md"]
    assert sum(entry.why == ATTACHED_TWICE for entry in envelope.entries) == 2


def test_what_was_sent_as_a_reference_stays_one() -> None:
    """Even if lamina would leave it out today: it came twice with one question."""
    log = [file("spec.md", SPEC), file("spec.md", SPEC), user("Summarise it")]
    second = files(built(log))[1]
    line = LedgerLine(form=Form.STUB, why="again", wording=4, sent=Digest("0" * 64), cut=0, reference=True)
    envelope = built(log, Ledger(lines={second.ref: line}))
    assert refers(files(envelope)[1])


def test_a_second_question_still_names_what_it_came_with() -> None:
    log = [file("spec.md", SPEC), user("Summarise it"), file("spec.md", SPEC), user("And this one?")]
    envelope = built(log)
    assert [refers(entry) for entry in files(envelope)] == [False, True]


def test_what_is_sent_again_beside_its_handle_in_the_library_says_so() -> None:
    log = [*first_turn(), assistant("Done. " * 300), user("And then?"), assistant("More. " * 300)]
    first = build(log[:2], options=HOISTED, counter=CHARS4)
    log.append(user("Go on."))
    small = Budget(window=900, reserve=0, keep_last=0)
    cut = build(log, options=HOISTED, counter=CHARS4, ledger=first.ledger, budget=small)
    assert cut.entry("spec.md").form is Form.STUB
    later = build([*log, assistant("Yes."), *again()], options=HOISTED, counter=CHARS4, ledger=cut.ledger)
    assert later.entry("spec.md").form is Form.FULL
    assert later.entry("spec.md").why == SENT_AGAIN


# what a tool loop fetched


def loop_of(number: int) -> list[Segment]:
    return [
        user(f"question {number}"),
        assistant("Let me look."),
        call("search", {"query": f"{number}"}, id=f"c{number}"),
        result(f"payload {number} " * 90, id=f"c{number}", name="search"),
        assistant(f"answer {number}"),
    ]


@pytest.mark.parametrize(
    ("layout", "leaves"),
    [
        (Layout(), False),
        (Layout(results="turn"), True),
        (Layout(library="hoisted"), True),
        (Layout(library="hoisted", results="kept"), False),
    ],
)
def test_what_a_tool_loop_fetched_leaves_with_its_turn(
    layout: Layout,
    leaves: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """001, "Tool Placement Model": tool outputs remain turn-scoped."""
    options = Options(layout=layout)
    log = loop_of(1)[:4]
    first = build(log, options=options)
    assert "payload" in text_of(first.sent[-1].parts)
    log = [*loop_of(1), *loop_of(2)[:1]]
    second = build(log, options=options, ledger=first.ledger)
    texts = [text_of(entry.parts) for entry in second.sent]
    assert any("payload" in text for text in texts) is not leaves
    stays = [text for text in texts if "payload" not in text and "query" not in text]
    assert stays == ["question 1", "Let me look.", "answer 1", "question 2"]
    assert (second.cut is not None) is leaves
    assert second.cut is None or second.cut.reason == TURN_SCOPED
    assert "payload 1" in text_of(recall(log, handle(second.entries[3].content))[0].parts)
    third = build([*log, assistant("answer 2"), user("question 3")], options=options, ledger=second.ledger)
    assert third.cut is None


def test_calls_that_were_never_answered_leave_with_their_turn_too() -> None:
    log = [*loop_of(1)[:3], user("question 2")]
    envelope = build(log, options=Options(layout=Layout(results="turn")))
    assert [text_of(entry.parts) for entry in envelope.sent] == ["question 1", "Let me look.", "question 2"]


def test_words_of_a_kind_are_asked_by_the_library() -> None:
    """001, "Phase 3", 3: the strategy is configurable by the source of the context."""
    asked: list[tuple[str, Form, int]] = []

    def words(part: Segment, form: Form, _: Digest, limit: int) -> str | None:
        asked.append((part.key, form, limit))
        if form is Form.COMPACT and part.key == "long.md":
            return "mine"
        return None

    wording = Wording(words={"note": words, "file": lambda *_: None})
    options = Options(layout=Layout(library="hoisted", prior_limit=300), wording=wording)
    attached = [note("long.md", SPEC), note("short.md", "Two words."), file("a.py", SPEC)]
    log = [user("One."), assistant("Yes."), *attached, user("Two."), *ask("Three.")]
    envelope = build(log, options=options)
    library = {e.segment.key: text_of(e.parts) for e in envelope.sent if e.layer is Layer.LIBRARY}
    assert library["long.md"] == "mine"
    assert library["short.md"].startswith('<prior_context source="short.md"')
    assert library["a.py"].startswith('<prior_context source="a.py"')
    assert ("long.md", Form.COMPACT, 300) in asked


# a cap on attachments beside the library


def test_what_a_cap_takes_from_the_library_is_sent_where_it_is_attached_and_in_no_list() -> None:
    """001, phase 6.5: references only exist if the library has what they refer to."""
    capped = Options(layout=Layout(library="hoisted", attachments=Cap(tokens=600, form=Form.OMITTED)))
    names, attached, ledger, log = "abcd", (0, 1), Ledger(), list[Segment]()
    for turn in range(12):
        attached = (turn % 4, turn * 3 % 4)
        log += [note(f"{names[at]}.md", f"Fact of {names[at]}. " * 80) for at in sorted(set(attached))]
        log.append(user(f"Question {turn}"))
        envelope = build(log, options=capped, ledger=ledger)
        listed = "".join(line for line in layer(envelope, Layer.TURN) if "Context attached" in line)
        assert {name for name in names if f"- {name}.md" in listed} <= {key[0] for key in sources(envelope)}
        audit(Case(log=tuple(log), envelope=envelope, options=capped))
        again = build(log, options=capped, ledger=Ledger.load(envelope.ledger.dump()))
        assert (again.prefix, again.ledger.cuts) == (envelope.prefix, envelope.ledger.cuts)
        log.append(assistant("Yes."))
        ledger = envelope.ledger
    assert any("over the cap" in entry.why for entry in envelope.entries)


def test_a_reference_to_the_library_is_a_line_of_the_ledger_and_stays_one() -> None:
    _, two, three = turns(TURN_1, TURN_2, TURN_3)
    spec = [entry for entry in three.entries if entry.segment.key == "project-spec.md"]
    lines = [two.ledger.lines.get(entry.ref) for entry in spec[:2]]
    assert lines[0] is None
    assert lines[1] is not None
    assert lines[1].why == f"stands in the library as {spec[0].ref}"


def test_attachments_of_the_last_turn_are_in_no_digest_since_they_move_into_the_library() -> None:
    log = [file("a.md", SPEC), user("Look.")]
    for number in range(8):
        log += [call("read", {"path": f"{number}"}, id=f"c{number}"), result("found " * 90, id=f"c{number}")]
    budget = Budget(window=500, reserve=0, keep_last=1)
    before = build(log, options=HOISTED, counter=CHARS4, budget=budget)
    assert before.ledger.folds
    assert before.entry("a.md").ref not in {ref for fold in before.ledger.folds for ref in fold.covers}
    log += [assistant("Done."), user("And?")]
    after = build(log, options=HOISTED, counter=CHARS4, budget=budget, ledger=before.ledger)
    assert after.entry("a.md").layer is Layer.LIBRARY
    audit(Case(log=tuple(log), envelope=after, before=before, counter=CHARS4, options=HOISTED))
