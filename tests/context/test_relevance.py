"""Relevance: what attachments share with the prompt, and how that changes what a cut lowers first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.context.relevance import Relevance, WordMatch, score_by_words, stem
from lamina.core import CHARS4, HIGH, LOW
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.kinds import ESSENTIAL, MEDIUM
from lamina.core.options import Options
from lamina.core.values import Budget, Form, Role, Segment
from lamina.segments import assistant, excerpt, file, segment, user

RETRY = file("src/retry.py", "def backoff(seconds): sleep and retry the request\n" * 8)
COLOUR = file("docs/palette.md", "crimson, amber and teal are the colours of the shop\n" * 8)
LIMITS = file("docs/limits.md", "at most twenty requests a minute, then retry later\n" * 8)
PROMPT_META = {"asked": True}


def prompt_of(text: str, **meta: Any) -> Segment:
    return user(text, meta=PROMPT_META | meta)


def cut(*log: Segment, order: Any, target: float = 0.55, trigger: float = 0.6, window: int = 430) -> Envelope:
    budget = Budget(window=window, reserve=0, keep_last=0, trigger=trigger, target=target)
    return build(log, budget=budget, counter=CHARS4, options=Options(order=order))


def forms(envelope: Envelope) -> dict[str, Form]:
    return {e.segment.key: e.form for e in envelope.entries if e.segment.key}


def talk(prompt: str) -> tuple[Segment, ...]:
    return (RETRY, COLOUR, LIMITS, user("Here they are."), assistant("I see."), user(prompt))


def test_at_a_cut_what_shares_nothing_with_the_prompt_goes_first() -> None:
    plain = cut(*talk("How long is the backoff before a retry?"), order=Options().order)
    assert forms(plain)["src/retry.py"] < Form.FULL == forms(plain)["docs/limits.md"]  # the oldest first
    envelope = cut(*talk("How long is the backoff before a retry?"), order=Relevance())
    assert forms(envelope)["docs/palette.md"] < Form.FULL == forms(envelope)["src/retry.py"]


def test_another_prompt_another_choice() -> None:
    envelope = cut(*talk("Which colours has the shop?"), order=Relevance())
    assert forms(envelope)["docs/palette.md"] is Form.FULL


def test_the_reason_names_the_priority_the_change_and_how_many_words() -> None:
    envelope = cut(*talk("How long is the backoff before a retry?"), order=Relevance(), target=0.2)
    why = {e.segment.key: e.why for e in envelope.entries}
    assert why["docs/palette.md"] == "attachment: priority 5, +2: shares nothing with the prompt"
    assert why["src/retry.py"] == "attachment: priority 5, -2: shares 2 words with the prompt"
    assert why["docs/limits.md"].endswith("shares 1 word with the prompt")


def test_nothing_changes_where_no_attachment_shares_a_word() -> None:
    for prompt in ("Go on, please.", "Why?", "", "Zebras!"):
        with_it, without = (
            cut(*talk(prompt), order=order, target=0.5) for order in (Relevance(), Options().order)
        )
        assert forms(with_it) == forms(without)


def test_what_the_caller_decided_stays() -> None:
    decided = file("mine.md", "crimson " * 60, priority=HIGH)
    pinned = file("pinned.md", "crimson " * 20, pinned=True)
    by_model = file("model.md", "crimson", priority=4, meta={"priority": {"by": "model"}})
    log = (decided, pinned, by_model, RETRY, user("Tell me about the backoff."))
    judged = Relevance().judge_entries(build(log, counter=CHARS4).entries)
    assert [log[at].key for at in judged] == ["src/retry.py"]
    turn = Relevance().rank_turn([*log[:-1], prompt_of("backoff?")])
    assert [one.priority for one in turn[:3]] == [HIGH, None, 4]


def test_a_change_stays_within_reach_and_bounds() -> None:
    log = [
        excerpt("nothing", source="wiki", key="low"),
        excerpt("backoff", source="wiki", key="better"),
        segment("agents_md", Role.USER, "nothing", key="high"),
        file("medium", "nothing"),
        user("backoff?"),
    ]
    for reach in (0, 2, 20):
        judged = Relevance(reach=reach).judge_entries(build(log, counter=CHARS4).entries)
        by_key = {log[at].key: one.priority for at, one in judged.items()}
        assert by_key == {
            "low": LOW, "better": max(LOW - reach, HIGH), "high": min(HIGH + reach, LOW),
            "medium": min(MEDIUM + reach, LOW),
        }  # fmt: skip


def test_what_is_essential_by_its_kind_stays_so() -> None:
    kinds = dict(Options().kinds)
    kinds["file"] = type(kinds["file"])(
        tag="file_context", role=Role.USER, priority=ESSENTIAL, attachment=True
    )
    envelope = build([RETRY, COLOUR, user("backoff?")], counter=CHARS4, options=Options(kinds=kinds))
    assert {one.priority for one in Relevance().judge_entries(envelope.entries, kinds).values()} == {
        ESSENTIAL
    }


def test_identifiers_and_endings_match_and_paths_count() -> None:
    texts = [file("a.py", "def getUserName(): ..."), file("b.py", "x"), file("retry_policy.toml", "x")]
    assert [m.score > 0 for m in score_by_words("the user's names", texts)] == [True, False, False]
    assert [m.score > 0 for m in score_by_words("get_user_name", texts)] == [True, False, False]
    assert [m.score > 0 for m in score_by_words("which policies?", texts)] == [False, False, True]
    assert {stem(word) for word in ("retry", "retries", "retrying", "retried")} == {"retry", "retri"}
    assert {stem(word) for word in ("stop", "stops", "stopped", "stopping")} == {"stop"}


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    texts = [file(name, f"request {rare}") for name, rare in (("a", "x"), ("b", "x"), ("c", "jitter"))]
    a, b, c = score_by_words("request jitter", texts)
    assert a.score == b.score < c.score == 1
    assert c.words == 2


@given(st.text(max_size=60), st.lists(st.text(max_size=40), max_size=5))
def test_scores_are_from_0_to_1_for_any_text_and_the_same_again(prompt: str, texts: list[str]) -> None:
    files = [file(f"{n}", text) for n, text in enumerate(texts)]
    judged = score_by_words(prompt, files)
    assert len(judged) == len(files)
    assert all(0 <= match.score <= 1 and (match.score > 0) == bool(match.words) for match in judged)
    assert judged == score_by_words(prompt, files)


def test_any_callable_may_score() -> None:
    def by_length(_: str, attached: Sequence[Segment]) -> list[WordMatch]:
        return [WordMatch(float(one.key == "docs/palette.md")) for one in attached]

    envelope = cut(*talk("backoff and retry"), order=Relevance(score=by_length))
    assert forms(envelope)["docs/palette.md"] is Form.FULL
    assert "relevance 1.00" in Relevance(score=by_length).judge_entries(envelope.entries)[1].why


def test_what_is_attached_again_with_the_prompt_counts_as_relevant() -> None:
    log = (RETRY, COLOUR, LIMITS, user("Here."), assistant("I see."), COLOUR, user("backoff and retry"))
    envelope = build(log, counter=CHARS4)
    again = Relevance().judge_entries(envelope.entries)[1]
    assert (again.priority, again.why) == (HIGH, "priority 5, -2: attached again with the prompt")


def test_a_turn_is_kept_with_priorities_and_their_reason() -> None:
    turn = Relevance().rank_turn([RETRY, COLOUR, prompt_of("a backoff")])
    assert [one.priority for one in turn] == [HIGH, 7, None]
    assert turn[1].meta["priority"] == {
        "by": "relevance", "why": "priority 5, +2: shares nothing with the prompt"
    }  # fmt: skip
    later = build([*turn, assistant("Ok."), user("The colours?")], counter=CHARS4)
    assert [one.priority for one in Relevance().judge_entries(later.entries).values()] == [7, HIGH]


def test_without_a_prompt_or_attachments_a_turn_stays() -> None:
    assert Relevance().rank_turn([RETRY, COLOUR]) == [RETRY, COLOUR]
    assert Relevance().rank_turn([prompt_of("a backoff")]) == [prompt_of("a backoff")]


def test_the_words_that_were_typed_count_not_those_of_a_template() -> None:
    prompt = prompt_of("Palette, colours, crimson. a backoff", typed="a backoff")
    turn = Relevance().rank_turn([RETRY, COLOUR, prompt])
    assert turn[0].priority == HIGH
