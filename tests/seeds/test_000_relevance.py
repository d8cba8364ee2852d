"""Source system 000: priorities of attachments, moved by relevance within the order that it describes.

Its document leaves to later that relevant files gain priority and irrelevant context loses it, as a model
suggests. Everything that it says about priorities holds all the same.
"""

from __future__ import annotations

import anyio
import pytest

from examples.priorities import suggest_priorities
from lamina import Envelope, Form, Options, Segment, build
from lamina.context.relevance import Relevance
from lamina.core import HIGH, LOW, Cap, Layout
from lamina.core.kinds import ESSENTIAL, MEDIUM
from lamina.core.tokens import BYTES4
from lamina.segments import file, user

ABOUT = {
    "billing.md": "invoices and refunds ",
    "deploy.md": "rollout to the cluster ",
    "hiring.md": "interviews ",
}


def attached(path: str, tokens: int = 100, *, priority: int | None = None, pinned: bool = False) -> Segment:
    around = len(f'<file_context path="{path}">\n\n</file_context>')
    text = (ABOUT.get(path, "prose ") * tokens * 4)[: tokens * 4 + 3 - around]
    return file(path, text, priority=priority, pinned=pinned)


THREE = tuple(map(attached, ABOUT))


def sent(prompt: str, *given: Segment, limit: int) -> Envelope:
    """A turn as a session keeps it, with at most so many tokens of attachments."""
    order = Relevance()
    turn = order.rank_turn([*given, user(prompt, meta={"asked": True})])
    layout = Layout(attachments=Cap(tokens=limit, form=Form.OMITTED))
    return build(turn, counter=BYTES4, options=Options(layout=layout, order=order))


def kept(envelope: Envelope) -> list[str]:
    return [e.segment.key for e in envelope.sent if e.segment.kind == "file"]


@pytest.mark.parametrize(
    ("prompt", "best"),
    [
        ("When are refunds paid?", "billing.md"),
        ("Is the rollout done?", "deploy.md"),
        ("How many interviews?", "hiring.md"),
    ],
)
def test_relevant_files_gain_and_irrelevant_ones_lose(prompt: str, best: str) -> None:
    envelope = sent(prompt, *THREE, limit=150)
    assert kept(envelope) == [best]
    assert {e.segment.key: e.segment.priority for e in envelope.entries if e.segment.key} == {
        name: HIGH if name == best else MEDIUM + 2 for name in ABOUT
    }


def test_s0_05_without_a_shared_word_the_first_of_equals_goes_first() -> None:
    assert kept(sent("What now?", *THREE, limit=250)) == ["deploy.md", "hiring.md"]
    assert kept(sent("What now?", *THREE, limit=150)) == ["hiring.md"]


def test_s0_04_within_the_limit_nothing_goes_however_irrelevant() -> None:
    assert kept(sent("Refunds?", *THREE, limit=300)) == list(ABOUT)
    assert len(kept(sent("Refunds?", *THREE, limit=299))) == 2


def test_s0_02_a_priority_that_was_given_outweighs_relevance() -> None:
    persona = attached("persona", priority=ESSENTIAL, pinned=True)
    history = attached("billing.md", 200, priority=LOW)
    notes = attached("hiring.md", 150, priority=MEDIUM)
    assert kept(sent("When are refunds paid?", persona, history, notes, limit=300)) == [
        "persona",
        "hiring.md",
    ]


def test_s0_06_what_is_essential_stays_and_going_over_is_reported() -> None:
    essential = attached("hiring.md", 500, pinned=True)
    envelope = sent("When are refunds paid?", essential, attached("billing.md", 10), limit=300)
    assert kept(envelope) == ["hiring.md"]
    assert "over their cap of 300" in envelope.notes[0]


def test_a_model_may_suggest_the_priorities_and_its_word_counts_first() -> None:
    prompt, asked = "When are refunds paid?", list[Envelope]()

    async def ask(question: Envelope) -> str:
        asked.append(question)
        return '{"1": 10, "2": 4, "3": 3}'

    suggested, _ = anyio.run(suggest_priorities, THREE, prompt, ask)
    assert kept(sent(prompt, *suggested, limit=150)) == ["hiring.md"]
    assert len(asked) == 1


def test_the_same_turn_gives_the_same_request() -> None:
    first, second = (sent("Refunds for the rollout?", *THREE, limit=250) for _ in range(2))
    assert first.prefix == second.prefix
    assert kept(first) == ["billing.md", "deploy.md"]
