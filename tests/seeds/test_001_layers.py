"""Source system 001: its layers as messages (S1-10 to S1-12), the library of earlier context (S1-30 to 35).

Its five layers are lamina's SYSTEM, LIBRARY, TURN, HISTORY and PROMPT, in the hoisted layout.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.importers.tagged_context import read_context
from lamina import Budget, BudgetExceeded, Envelope, Form, Layer, Ledger, Options, Segment, build, recall
from lamina.core import CHARS4, Filter, Layout, audit, text_of
from lamina.core.laws import Case
from lamina.core.library import LIBRARY_TITLE
from lamina.core.wording import name_of
from lamina.dialects import DIALECTS
from lamina.segments import assistant, note, project, segment, selected_text, system, url, user

HOISTED = Options(layout=Layout(library="hoisted"))
OLD, NEW = "Existing words. " * 20, "New words."


def rendered(*log: Segment, options: Options = HOISTED) -> Any:
    return DIALECTS["openai_chat"].wire.render(build(log, options=options))["messages"]


def library(envelope: Envelope) -> list[str]:
    return [e.segment.key for e in envelope.sent if e.layer is Layer.LIBRARY][1:]


def later(*context: Segment) -> Envelope:
    """A second turn, after one with this context."""
    return build([*context, user("1"), assistant("1"), user("2")], options=HOISTED)


def test_s1_10_system_and_question_are_sent_as_they_are() -> None:
    both = system("You are a helpful assistant."), user("Hello, how are you?")
    assert rendered(*both) == [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Hello, how are you?"},
    ]
    alone = [{"role": "user", "content": "Hello, how are you?"}]
    assert rendered(both[1]) == alone
    assert rendered(system(""), both[1]) == alone
    without = Options(layout=Layout(library="hoisted", exclude=Filter(layers=frozenset((Layer.SYSTEM,)))))
    assert rendered(*both, options=without) == alone


SECOND = (
    system("System prompt"), note("Notes/existing.md", OLD), user("First"), assistant("Yes"),
    note("Notes/existing.md", OLD), note("Notes/new.md", NEW), user("User query"),
)  # fmt: skip


def test_s1_11_the_library_after_the_system_text_and_a_reference_in_the_turn() -> None:
    told = [(message["role"], message["content"]) for message in rendered(*SECOND)]
    existing = f'<prior_context source="Notes/existing.md" type="note">\n{OLD}\n</prior_context>'
    inside = f"<title>new</title>\n<path>Notes/new.md</path>\n<content>\n{NEW}\n</content>"
    assert told[:3] == [("system", "System prompt"), ("user", LIBRARY_TITLE), ("user", existing)]
    refers = (
        "Context attached to this message:\n- Notes/existing.md\n\nFind them in the Context Library above."
    )
    new = f"<note_context>\n{inside}\n</note_context>"
    assert told[5:] == [("user", refers), ("user", new), ("user", "User query")]
    assert not any(OLD in text for _, text in told[3:])


def test_s1_11_without_system_text_the_library_stays() -> None:
    assert rendered(*SECOND[1:])[0] == {"role": "user", "content": LIBRARY_TITLE}


def test_s1_12_layers_can_be_told_apart_and_have_hashes() -> None:
    envelope = build(SECOND, options=HOISTED)
    mine = [text_of(e.parts) for e in envelope.sent if e.layer in (Layer.TURN, Layer.PROMPT)]
    assert not any(OLD in text or "System prompt" in text for text in mine)
    assert list(envelope.layers) == [Layer.SYSTEM, Layer.LIBRARY, Layer.HISTORY, Layer.TURN, Layer.PROMPT]
    assert len(set(envelope.layers.values())) == 5
    changed = build([*SECOND[:-1], user("Another query")], options=HOISTED)
    same = [layer for layer in envelope.layers if envelope.layers[layer] == changed.layers[layer]]
    assert same == [Layer.SYSTEM, Layer.LIBRARY, Layer.HISTORY, Layer.TURN]


def test_s1_12_where_text_stands_is_part_of_the_hash() -> None:
    apart = build([note("a", "x"), user("y")], options=HOISTED)
    joined = build([user(text_of(apart.entries[0].parts)), user("y", joins=True)], options=HOISTED)
    assert apart.prefix != joined.prefix


def test_s1_30_a_selection_cannot_be_had_again_and_stays_word_for_word() -> None:
    marked = "marked words. " * 600
    envelope = later(note("a.md", OLD), selected_text(marked, key="s"))
    assert library(envelope) == ["a.md", "s"]
    assert marked in text_of(envelope.entry("s").parts)
    assert library(later(segment("web_selected_text", user("").role, "marked", key="w"))) == ["w"]


def test_s1_31_what_can_be_had_again_is_carried_and_so_is_what_is_unknown() -> None:
    assert library(later(note("a.md", OLD), url("https://b", NEW))) == ["a.md", "https://b"]
    found = read_context("<unknown_tag>kept</unknown_tag>")
    assert [key[:9] for key in library(later(*found.unparsed))] == ["unparsed:"]
    prior = '<prior_context source="old.md" type="note">\nshort of it\n</prior_context>'
    envelope = later(*read_context(prior).segments)
    assert [text_of(e.parts) for e in envelope.sent if e.layer is Layer.LIBRARY][1:] == [prior]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_s1_32_of_several_blocks_in_one_text_all_stay(order: tuple[int, ...]) -> None:
    each = (
        "<selected_text>\n<content>\nmarked\n</content>\n</selected_text>",
        "<note_context>\n<path>a.md</path>\n<content>\nx\n</content>\n</note_context>",
        "<url_content>\n<url>https://b</url>\n<content>\ny\n</content>\n</url_content>",
    )
    found = read_context("\n\n".join(each[i] for i in order))
    names = ("selected_text", "a.md", "https://b")
    assert library(later(*found.segments)) == [names[i] for i in order]


def test_s1_33_the_library_is_introduced_once_and_only_where_it_is() -> None:
    literal = note("a.md", f"about <prior_context> and {LIBRARY_TITLE}")
    first = [text_of(e.parts) for e in build([literal, user("1")], options=HOISTED).sent]
    assert LIBRARY_TITLE not in first
    assert "<prior_context>" not in str(first)
    told = [text_of(e.parts) for e in later(literal, note("b.md", "# A\n\n" + "x. " * 3000 + "\n# B\n")).sent]
    assert told.count(LIBRARY_TITLE) == 1
    assert sum(text.count("<prior_context") for text in told) == 2


def test_s1_33_what_is_compacted_there_can_be_recalled_by_its_source() -> None:
    long = "# A\n\n" + "x. " * 3000 + "\n# B\n"
    log = [note("b.md", long), user("1"), assistant("1"), user("2")]
    (entry,) = [e for e in build(log, options=HOISTED).sent if e.segment.key == "b.md"]
    assert (entry.form, 'source="b.md"' in text_of(entry.parts)) == (Form.COMPACT, True)
    assert text_of(recall(log, "b.md")[0].parts) == long


def test_s1_34_a_tag_in_a_note_is_content() -> None:
    body = "see <selected_text>this</selected_text> here"
    block = "<note_context>\n<path>{}</path>\n<content>\n{}\n</content>\n</note_context>"
    found = read_context(block.format("a.md", body) + "\n\n" + block.format("b.md", "x"))
    assert [(s.key, text_of(s.parts)) for s in found.segments] == [("a.md", body), ("b.md", "x")]
    assert library(later(*found.segments)) == ["a.md", "b.md"]


def test_s1_35_the_newest_content_in_the_first_place_and_nothing_leaves() -> None:
    log = [note("a.md", "old"), note("b.md", "b"), user("1"), assistant("1")]
    log += [
        note("c.md", "c"),
        user("2"),
        assistant("2"),
        note("a.md", "new"),
        user("3"),
        assistant("3"),
        user("4"),
    ]
    envelope = build(log, options=HOISTED)
    assert library(envelope) == ["a.md", "b.md", "c.md"]
    shelf = [text_of(e.parts) for e in envelope.sent if e.layer is Layer.LIBRARY]
    assert "\nnew\n" in shelf[1]
    assert "old" not in str(shelf)


def test_a_project_of_two_million_tokens_fails_by_name_and_one_that_fits_does_not() -> None:
    budget = Budget(window=128_000, reserve=8_000)
    history = [text for i in range(20) for text in (user(f"q{i}"), assistant("a" * 40_000))]
    log = [project("p" * 2_000_000), *history, user("now?")]
    with pytest.raises(BudgetExceeded) as caught:
        build(log, budget=budget, counter=CHARS4)
    assert caught.value.segments[0] == ("project", 500_006)
    fits = build([project("p" * 200_000), *history, user("now?")], budget=budget, counter=CHARS4)
    assert fits.tokens <= 120_000


SPOKEN = {"user", "assistant"}
ATTACHED = st.lists(
    st.tuples(st.sampled_from(["a.md", "b.md", "c.md"]), st.sampled_from(["old ", "new "]), st.booleans()),
    max_size=4,
)


@given(turns=st.lists(ATTACHED, min_size=1, max_size=5), window=st.sampled_from([1_500, 4_000, 100_000]))
def test_any_run_of_attachments_keeps_the_invariants_of_the_layers(turns: Any, window: int) -> None:
    log: list[Segment] = []
    ledger = Ledger()
    before: Envelope | None = None
    for number, attached in enumerate(turns):
        for path, words, marked in attached:
            log.append(selected_text(words * 40, path=path) if marked else note(path, words * 120))
        log.append(user(f"Question {number}"))
        envelope = build(log, budget=Budget(window=window, reserve=0), ledger=ledger, options=HOISTED)
        audit(Case(log=tuple(log), envelope=envelope, before=before, options=HOISTED))
        library = [e.segment for e in envelope.sent if e.layer is Layer.LIBRARY]
        keys = [one.key for one in library if one.key]  # a selection has none
        assert len(keys) == len(set(keys))
        named = [e for e in envelope.sent if text_of(e.parts).startswith("Context attached to this message")]
        for entry in named:
            paths = [line[2:] for line in text_of(entry.parts).split("\n") if line.startswith("- ")]
            assert set(paths) <= {name_of(one) for one in library}
        spoken = [e for e in envelope.sent if e.layer is Layer.HISTORY and e.segment.kind in SPOKEN]
        assert not any("_context" in text_of(e.parts) for e in spoken)
        log.append(assistant(f"Answer {number}"))
        ledger, before = envelope.ledger, envelope
