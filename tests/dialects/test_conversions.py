"""What one API said, in the words of another: valid there, to the SDK of its provider too, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, BudgetExceeded, RequestHead, Role, Segment, build, segments, translate
from lamina.core import Document, Image, Layout, Raw, Text, Thinking, ToolResult
from lamina.dialects import DIALECTS
from lamina.dialects.translate import choose_options
from lamina.testing.conformance import MODELS
from tests.dialects.conversations import TALKS
from tests.dialects.sdks import ACCEPTED

Json = dict[str, Any]

# From every API to every other


@pytest.mark.parametrize("target", DIALECTS)
@given(st.sampled_from(sorted(TALKS)), st.integers(0, 10_000), st.sampled_from((None, 3_000)))
def test_what_another_api_said_is_a_valid_request_there_and_back(
    target: str, source: str, seed: int, window: int | None
) -> None:
    request = TALKS[source].ask(seed)
    budget = Budget(window=window, reserve=0) if window else None
    try:
        there = translate(request, dialect=source, to=target, model=MODELS[target], budget=budget).request
    except BudgetExceeded:
        return
    assert DIALECTS[target].wire.check(there) == []
    ask_sdk = ACCEPTED.get(target)
    if ask_sdk is not None and source != target:
        ask_sdk(there)
    back = translate(there, dialect=target, to=source, model=MODELS[source]).request
    assert DIALECTS[source].wire.check(back) == []
    assert "unnamed" not in json.dumps(back, default=str)


FROM_ELSEWHERE = [
    segments.system("Be brief."),
    segments.user((Text("See"), Image(data="aGk=", media_type="image/png"))),
    segments.thinking("hm", signature="s"),
    segments.assistant("I look.", joins=True),
    segments.call("take shot", {"of": "window"}, id="c1"),
    segments.call("log", {}, id="c2"),
    segments.result((Text("taken"), Image(data="aGk=", media_type="image/png")), id="c1"),
    segments.result("broken", id="c2", error=True, joins=True),
    segments.system("Be loud."),
    segments.user("And?"),
]
WRITTEN: dict[str, str] = {
    "anthropic": "user assistant user user user",
    "openai_chat": "system user assistant tool tool user system user",
    "openai_responses": "user assistant function_call function_call function_call_output "
    "function_call_output system user",
    "gemini": "user model user user user",
    "ollama": "system user assistant tool tool system user",
    "bedrock_converse": "user assistant user",
}
"""Who speaks in the turns that are made of it, or the sort of an item without a role."""

SIGNING = ("anthropic", "gemini", "bedrock_converse")
"""APIs that take signed thinking which nobody says is another's."""

FLAGGING = SIGNING
"""APIs in which a result says that it failed."""


@pytest.mark.parametrize("target", WRITTEN)
def test_a_log_that_came_from_elsewhere_is_written_from_its_parts(target: str) -> None:
    head = RequestHead(parameters={"model": MODELS[target], "max_tokens": 9})
    options = choose_options(DIALECTS[target], head, layout=Layout(context="logged"))
    request = DIALECTS[target].wire.render(build(FROM_ELSEWHERE, head=head, options=options))
    assert DIALECTS[target].wire.check(request) == []
    turns = request.get("messages") or request.get("input") or request["contents"]
    assert " ".join(turn.get("role") or turn["type"] for turn in turns) == WRITTEN[target]
    written = json.dumps(request)
    for words in ("Be brief.", "Be loud.", "See", "aGk=", "I look.", "taken", "broken", "And?"):
        assert words in written
    assert "take_shot" in written or target == "ollama"
    assert ("hm" in written) is (target in SIGNING)
    log = DIALECTS[target].wire.parse(request).log
    failed = [part.error for each in log if isinstance(part := each.parts[0], ToolResult)]
    assert failed == [False, target in FLAGGING], "the others say so in the words of the result"


# What cannot be said


def said(*parts: Any, role: Role = Role.USER, kind: str = "user", origin: str = "anthropic") -> Segment:
    meta = {"wire": {"dialect": origin}}
    return Segment(role=role, kind=kind, parts=parts, origin=origin, meta=meta)


def thought(part: Any, origin: str = "anthropic") -> Segment:
    return said(part, role=Role.ASSISTANT, kind="thinking", origin=origin)


PICTURE = Image(data="aGk=", media_type="image/png")
LINKED = Image(url="https://example.org/a.png")
SEALED = Document(data="aGk=")
FOREIGN_FILE = Document(url="files/abc")
FOREIGN = Raw(dialect="gemini", data={"executableCode": {}})

CARRIED: list[tuple[str, Segment, str]] = [
    ("ollama", said(Text("x")), ""),
    ("ollama", said(Image(data="AAAA")), ""),
    ("ollama", said(Image(url="data:image/png;base64,AAAA")), ""),
    ("ollama", said(LINKED), "address"),
    ("ollama", said(Document(text="x")), ""),
    ("ollama", said(SEALED), "document"),
    ("ollama", said(FOREIGN), ""),
    ("ollama", said(FOREIGN, role=Role.ASSISTANT, kind="assistant"), "block of gemini"),
    ("ollama", thought(FOREIGN), "reasoning of"),
    ("ollama", thought(Thinking(text="x")), ""),
    ("ollama", thought(Thinking(text="x", signature="s")), "reasoning of anth"),
    ("ollama", said(ToolResult(id="c", content=(SEALED,))), "document"),
    ("ollama", said(ToolResult(id="c", content=(LINKED,))), ""),
    ("ollama", said(Image(url="a.png"), origin="ollama"), ""),
    ("text", said(Text("x")), ""),
    ("text", said(PICTURE), "picture"),
    ("text", said(LINKED), "picture"),
    ("text", said(Document(text="x")), ""),
    ("text", said(SEALED), "document"),
    ("text", said(FOREIGN), ""),
    ("text", said(FOREIGN, role=Role.ASSISTANT, kind="assistant"), "block of gemini"),
    ("text", thought(Thinking(text="x")), "reasoning"),
    ("text", said(ToolResult(id="c", content=(Text("x"), PICTURE))), "picture"),
    ("text", said(ToolResult(id="c", content=(LINKED,))), ""),
    ("text", said(PICTURE, origin="text"), ""),
    ("openai_responses", said(Text("hi"), LINKED), ""),
    ("openai_responses", said(Raw(dialect="gemini", data={"videoMetadata": {}})), ""),
    ("openai_responses", said(Document(url="file-1"), origin="openai_chat"), ""),
    ("openai_responses", thought(Thinking(text="hm", signature="s")), "reasoning"),
    ("openai_responses", said(FOREIGN, role=Role.ASSISTANT), "a block"),
    ("openai_responses", said(PICTURE, role=Role.ASSISTANT), "assistant"),
    ("openai_responses", said(Document(data="aGk=", media_type="audio/wav")), "audio"),
    ("openai_responses", said(Image(data="aGk=", media_type="image/heic")), "image/heic"),
    ("openai_responses", said(FOREIGN_FILE), "only another API has"),
    ("openai_responses", said(ToolResult(id="c", content=(FOREIGN_FILE,)), role=Role.TOOL), "only another"),
    ("gemini", said(LINKED), ""),
    ("gemini", said(Image(url="data:image/png;base64,not=base64")), "media"),
    ("gemini", said(FOREIGN_FILE), "media of anthropic that gemini cannot fetch"),
    ("gemini", said(FOREIGN_FILE, origin="gemini"), ""),
]


@pytest.mark.parametrize(("target", "segment", "reason"), CARRIED)
def test_what_cannot_be_said_here_has_a_reason(target: str, segment: Segment, reason: str) -> None:
    why = DIALECTS[target].wire.carries(segment)
    assert reason in why if reason else why == ""


SEARCHED = {"source": "s", "title": "t", "content": [{"text": "rhubarb"}]}
OWN_BLOCKS: dict[str, Json] = {
    "anthropic": {"type": "search_result", **SEARCHED},
    "openai_chat": {"type": "video_url", "video_url": {"url": "https://example.org/rhubarb"}},
    "openai_responses": {"type": "input_audio", "input_audio": {"data": "rhubarb", "format": "wav"}},
    "bedrock_converse": {"searchResult": SEARCHED},
}
"""What a user says in blocks that only one API has."""


@pytest.mark.parametrize("source", OWN_BLOCKS)
@pytest.mark.parametrize("target", MODELS)
def test_what_a_user_says_in_a_block_of_one_api_is_not_lost_in_another(source: str, target: str) -> None:
    field = "input" if source == "openai_responses" else "messages"
    talk = [{"role": "user", "content": [OWN_BLOCKS[source]]}]
    request = {field: talk, "max_tokens": 9}
    there = translate(request, dialect=source, to=target, model=MODELS[target]).request
    assert "rhubarb" in json.dumps(there)


def test_results_that_would_be_read_wrongly_stand_in_the_order_of_their_calls() -> None:
    """Ollama has no ids: two results of one tool are told apart by their order alone."""
    calls = [{"type": "tool_use", "id": id_, "name": "read", "input": {"path": id_}} for id_ in "ab"]
    results = [{"type": "tool_result", "tool_use_id": id_, "content": f"in {id_}"} for id_ in "ba"]
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]
    request = {"model": "claude-opus-4-8", "max_tokens": 9, "messages": messages}
    sent = translate(request, dialect="anthropic", to="ollama", model="qwen3").request
    assert [message["content"] for message in sent["messages"][2:]] == ["in a", "in b"]
