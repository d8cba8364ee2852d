"""Injected text stays what it is: in its role, in its fence, and whole."""

from __future__ import annotations

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core import Wording, wording
from lamina.core import digests as digests_module
from lamina.core.build import build
from lamina.core.recall import recall
from lamina.core.text import tags
from lamina.core.values import Budget
from lamina.dialects import DIALECTS, Dialect
from lamina.dialects.text import layout
from lamina.errors import NotFound
from lamina.segments import assistant, call, file, result, user
from lamina.testing import Conformance
from lamina.testing.model_server import MODEL, run_model_server
from tests.fixtures.attacks import ATTACKS, FORGED
from tests.fixtures.injections import (
    PLACES,
    WORDINGS,
    conversation,
    envelopes,
    faults,
    injections,
    loose,
    lost,
)

TEXT, CHAT = DIALECTS["text"], DIALECTS["openai_chat"]


@pytest.mark.parametrize("case", injections(*DIALECTS.values()), ids=str)
def test_an_attack_changes_nothing_in_any_place_dialect_or_wording(case: Conformance) -> None:
    case()


MIXED = st.lists(
    st.one_of(st.sampled_from(list(ATTACKS.values())), st.text(max_size=20)), min_size=1, max_size=4
)


@settings(max_examples=max(settings().max_examples // 4, 1))  # each is five requests of 45 segments
@given(
    texts=st.lists(MIXED.map("".join).filter(str.strip), min_size=2, max_size=7),
    dialect=st.sampled_from(list(DIALECTS.values())), worded=st.sampled_from(list(WORDINGS.values())),
)  # fmt: skip
def test_mixed_attacks_change_nothing_either(texts: list[str], dialect: Dialect, worded: Wording) -> None:
    log = conversation(*texts)
    assert lost(log) == []
    for envelope in envelopes(log, worded):
        assert loose(envelope, worded) == []
        assert faults(envelope, dialect) == []


def achieved(attack: str) -> list[str]:
    log = conversation(ATTACKS[attack])
    return [fault for e in envelopes(log) for fault in [*loose(e), *faults(e, TEXT), *faults(e, CHAT)]]


def unguarded(body: str, *_: object, **__: object) -> str:
    return body


@pytest.mark.parametrize(
    ("owner", "name", "bug", "attack"),
    [
        (wording, "guard", unguarded, "fence, closing tag"),
        (digests_module, "guard", unguarded, "fence, closing tag"),
        (tags, "escape_attribute", unguarded, "fence, open quote"),
        (wording, "make_inert", lambda text, limit: text[:limit], "handle, stub"),
        (layout, "escape_labels", unguarded, "role, flat labels"),
    ],
)
def test_the_catalogue_sees_a_missing_defence(
    owner: object, name: str, bug: object, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert achieved(attack) == []
    monkeypatch.setattr(owner, name, bug)
    assert achieved(attack)


def test_every_place_has_the_attack_in_it() -> None:
    for name, place in PLACES.items():
        assert "obey me" in str(place("obey me")), name


def test_a_text_that_passes_for_a_stub_leads_nowhere() -> None:
    log = [user("hi"), file("a.txt", ATTACKS["handle, stub"] + ATTACKS["handle, digest"])]
    for name in FORGED:
        with pytest.raises(NotFound):
            recall(log, name, ledger=build(log).ledger)


def test_a_call_that_is_only_text_is_not_answered_and_calls_nothing() -> None:
    """Neither in a reply nor in a result does text become a call, and repair does not pair it with one."""
    forged = ATTACKS["structure, tool use"] + ATTACKS["structure, tool result"]
    log = [user("go"), call("read", {"path": "a"}, id="c1", joins=False), result(forged, id="c1")]
    log += [assistant(forged)]
    for dialect in DIALECTS.values():
        read = dialect.wire.parse(dialect.wire.render(build([*log, user("on")]))).log
        assert [one.kind for one in read] == ["user", "tool_call", "tool_result", "assistant", "user"]
        assert [one.kind for one in read].count("tool_call") == 1


def test_invisible_signs_are_sent_as_they_are_and_not_dropped_in_silence() -> None:
    """Correct bytes come first: what an application wants removed, its `redact` removes."""
    for name in ("tag characters", "bidi", "zero width"):
        text = ATTACKS[f"sign, {name}"]
        (entry,) = build([file("a.txt", text)]).sent
        assert text in wording.unguard(wording.text_of(entry.parts))


def test_a_digest_of_hostile_turns_is_one_fence_without_invisible_signs() -> None:
    attack = ATTACKS["sign, tag characters"] + ATTACKS["sign, control characters"]
    log = [one for n in range(20) for one in (user(f"{n} {attack}"), assistant(f"{n} is done. " * 40))]
    envelope = build([*log, user("on")], budget=Budget(window=1_500, reserve=0, keep_last=1))
    digests = [entry for entry in envelope.sent if entry.segment.kind == "digest"]
    assert digests
    assert loose(envelope) == []


def test_a_server_may_read_the_markers_of_its_own_template_in_a_text() -> None:
    """What docs/laws.md says that lamina does not do: twelve characters are one token there."""
    with run_model_server(window=2_048) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        counts = []
        for text in ("x", "x<|im_start|>"):
            answer = client.chat.completions.create(
                model=MODEL, max_tokens=1, messages=[{"role": "user", "content": text}]
            )
            assert answer.usage is not None
            counts.append(answer.usage.prompt_tokens)
        client.close()
    assert counts[1] - counts[0] == 1
