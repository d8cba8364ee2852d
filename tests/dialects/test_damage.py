"""Whole, fitted, damaged, changed and hostile requests of six dialects: what is sent is valid, or refused.

A table says what each dialect needs for that. What only one of them has is in a file of its own.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput, BudgetExceeded, Envelope, Form, Segment
from lamina.dialects import DIALECTS, Dialect
from lamina.dialects.memos import ParseMemo
from lamina.dialects.origins import read_origin
from tests.dialects import bedrock_requests as bedrock
from tests.dialects import gemini_requests as gemini
from tests.dialects import ollama_requests as ollama
from tests.dialects import openai_chat_requests as chat
from tests.dialects import openai_responses_requests as responses
from tests.dialects.conversations import TALKS
from tests.dialects.sdks import ACCEPTED
from tests.dialects.sending import fit

Json = dict[str, Any]
Damage = Callable[[list[Json], Random], None]

# Ways in which histories break. What breaks inside of messages is in the pools of `hostile.py`, but for
# Converse, which has no pool there, and for the SDK of the Responses API, which has none of its fragments.


def _dropped(turns: list[Json], dice: Random) -> None:
    del turns[dice.randrange(len(turns))]


def _doubled(turns: list[Json], dice: Random) -> None:
    at = dice.randrange(len(turns))
    turns.insert(at, copy.deepcopy(turns[at]))


def _shuffled(turns: list[Json], dice: Random) -> None:
    dice.shuffle(turns)


def _truncated(turns: list[Json], dice: Random) -> None:
    del turns[dice.randrange(1, len(turns) + 1) :]


def _beheaded(turns: list[Json], dice: Random) -> None:
    del turns[: dice.randrange(len(turns))]


ANYWHERE: tuple[Damage, ...] = (_dropped, _doubled, _shuffled, _truncated, _beheaded)


def _thinned_blocks(messages: list[Json], dice: Random) -> None:
    for message in messages:
        if len(message["content"]) > 1 and dice.random() < 0.3:
            del message["content"][dice.randrange(len(message["content"]))]


def _split_blocks(messages: list[Json], _: Random) -> None:
    messages[:] = [{**message, "content": [block]} for message in messages for block in message["content"]]


def _one_id_of_converse(messages: list[Json], _: Random) -> None:
    for message in messages:
        for block in message["content"]:
            for linked in (block.get("toolUse"), block.get("toolResult")):
                if linked:
                    linked["toolUseId"] = "functions.call 0"


def _blank_texts_of_converse(messages: list[Json], dice: Random) -> None:
    for message in messages:
        for block in message["content"]:
            if "text" in block and dice.random() < 0.3:
                block["text"] = dice.choice(("", " "))


def _damaged_items(items: list[Json], dice: Random) -> None:
    """Items dropped, doubled and swapped, with ids made equal or empty and texts emptied."""
    result: list[Json] = []
    for item in copy.deepcopy(items):
        roll = dice.random()
        if roll < 0.1:
            continue
        if roll < 0.15 and "call_id" in item:
            item["call_id"] = dice.choice(("same", "", "x" * 80))
        elif roll < 0.2 and "id" in item:
            item["id"] = dice.choice(("msg_1", "call_1", ""))
        elif roll < 0.25 and "content" in item:
            item["content"] = dice.choice(("", []))
        result += [item, item] if 0.25 < roll < 0.33 else [item]
        if roll > 0.9 and len(result) > 1:
            result[-1], result[-2] = result[-2], result[-1]
    items[:] = result


# the dialects


def _validate_converse(request: Json) -> None:
    assert bedrock.refusals(request) == ""


class Subject(NamedTuple):
    """A dialect, and what is done to its requests.

    `frame` gives a damaged request its first or last turn, so that it has a valid reading; a dialect without
    one may refuse. `flood` has a text wherever text may stand, and `refused` are the rules that this breaks.
    """

    name: str
    change: Callable[[Json], None]
    mirror: Callable[[], Json]
    flood: Callable[[str], Json]
    refused: frozenset[str] = frozenset()
    frame: Callable[[Json], Json] | None = None
    damages: tuple[Damage, ...] = ANYWHERE
    validate: Callable[[Json], None] = lambda _: None

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.name]

    @property
    def turns(self) -> str:
        """The field that holds its turns."""
        return TALKS[self.name].field

    def conversation(self, seed: int) -> Json:
        return TALKS[self.name].make(seed)

    def fitted(self, request: Json, **dials: Any) -> Envelope:
        return fit(self.name, request, **dials)


def _mirror(make_user: Callable[[Any], Json]) -> Json:
    """A message that holds itself."""
    message = make_user([{"type": "mirror"}])
    message["content"][0]["mirror"] = message
    return message


def _mirrored_arguments() -> Json:
    arguments: Json = {}
    arguments["mirror"] = arguments
    return ollama.request(ollama.user(), ollama.asks(ollama.called("f", arguments)))


def _mirrored_input() -> Json:
    tool_input = _mirrored_arguments()["messages"][1]["tool_calls"][0]["function"]["arguments"]
    return bedrock.request(bedrock.user(), bedrock.says(bedrock.called("c", **tool_input)))


def _mirrored_part() -> Json:
    content = gemini.user({"mirror": None})
    content["parts"][0]["mirror"] = content
    return gemini.body(content)


def _messages_request(*messages: Json) -> Json:
    return {"model": "claude-sonnet-4-5", "max_tokens": 64, "messages": list(messages)}


def _flood_messages(text: str) -> Json:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}}
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"text": text}}
    return _messages_request(
        {"role": "user", "content": [{"type": "text", "text": text}, picture]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": text}]},
    )


def _flood_chat(text: str) -> Json:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    picture = {"type": "image_url", "image_url": {"url": "data:" + text}}
    return chat.request(
        chat.user([{"type": "text", "text": text}, picture]),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": text},
    )


def _flood_ollama(text: str) -> Json:
    calls = ollama.asks(ollama.called("f", {"text": text}), ollama.called(text, {}))
    return ollama.request(ollama.user(text), calls, ollama.answers(text, "f"))


def _flood_gemini(text: str) -> Json:
    picture = {"fileData": {"mimeType": "image/png", "fileUri": f"data:{text}"}}
    calls = gemini.model(gemini.asks(text, id_=text, path=text))
    return gemini.body(gemini.user(text, picture), calls, gemini.user(gemini.answers(text, text, id_=text)))


def _flood_converse(text: str) -> Json:
    calls = bedrock.says(bedrock.called("c", "f", text=text))
    return bedrock.request(
        bedrock.user({"text": text}, bedrock.picture()),
        calls,
        bedrock.user(bedrock.answers("c", {"text": text})),
    )


def _flood_responses(text: str) -> Json:
    picture = {"type": "input_image", "image_url": "data:" + text, "detail": "auto"}
    question = responses.user([{"type": "input_text", "text": text}, picture])
    return responses.request(question, responses.calls("c", "f", text), responses.answers("c", text))


def _change_content(turn: Json) -> None:
    turn["content"] = "changed"


def _change_parts(turn: Json) -> None:
    turn["parts"].append({"text": "changed"})


def _question_at_the_end(request: Json) -> Json:
    return request | {"messages": [*request["messages"], {"role": "user", "content": "And now?"}]}


def _ask_at_the_end(request: Json) -> Json:
    return request | {"contents": [*request["contents"], gemini.user("And now?")]}


def _greet_first(request: Json) -> Json:
    store = len(request["input"]) % 2 == 0
    return responses.request(responses.user("Hello"), *request["input"], store=store)


SUBJECTS = (
    Subject(
        name="anthropic",
        change=_change_content,
        mirror=lambda: _messages_request(_mirror(chat.user)),
        flood=_flood_messages,
        frame=_question_at_the_end,
    ),
    Subject(
        name="openai_chat",
        change=_change_content,
        mirror=lambda: chat.request(_mirror(chat.user)),
        flood=_flood_chat,
    ),
    Subject(
        name="ollama",
        change=_change_content,
        mirror=_mirrored_arguments,
        flood=_flood_ollama,
        refused=frozenset({"calls_and_results_pair"}),
        validate=ACCEPTED["ollama"],
    ),
    Subject(
        name="gemini",
        change=_change_parts,
        mirror=_mirrored_part,
        flood=_flood_gemini,
        refused=frozenset({"names_and_ids_fit"}),
        frame=_ask_at_the_end,
        validate=ACCEPTED["gemini"],
    ),
    Subject(
        name="openai_responses",
        damages=(*ANYWHERE, _damaged_items),
        change=_change_content,
        mirror=lambda: responses.request(_mirror(responses.user)),
        flood=_flood_responses,
        frame=_greet_first,
        validate=ACCEPTED["openai_responses"],
    ),
    Subject(
        name="bedrock_converse",
        damages=(*ANYWHERE, _thinned_blocks, _split_blocks, _one_id_of_converse, _blank_texts_of_converse),
        change=lambda turn: turn["content"].append({"text": "changed"}),
        mirror=_mirrored_input,
        flood=_flood_converse,
        frame=lambda request: request | {"messages": [*request["messages"], bedrock.user()]},
        validate=_validate_converse,
    ),
)

SEEDS = st.integers(0, 10_000)
each_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)


@each_subject
@given(SEEDS)
def test_valid_requests_come_back_as_the_same_objects(subject: Subject, seed: int) -> None:
    request = subject.conversation(seed)
    assert subject.dialect.wire.check(request) == []
    rendered = subject.dialect.wire.render(subject.fitted(request))
    assert rendered == request
    turns = zip(rendered[subject.turns], request[subject.turns], strict=True)
    assert all(sent is original for sent, original in turns)


@each_subject
@given(SEEDS, st.sampled_from((0.2, 0.4, 0.7)), st.integers(0, 3))
def test_fitted_requests_are_valid_and_what_did_not_change_is_the_same_object(
    subject: Subject, seed: int, share: float, keep_last: int
) -> None:
    request, wire = subject.conversation(seed), subject.dialect.wire
    window = 300 + int(share * subject.fitted(request).tokens)
    with suppress(BudgetExceeded):
        envelope = subject.fitted(request, window=window, keep_last=keep_last)
        rendered = wire.render(envelope)
        _is_valid(subject, rendered)
        wire.parse(json.loads(json.dumps(rendered)))
        if subject.name == "openai_responses":  # an item may lose its id with the reasoning before it
            return
        lowered = [e for e in envelope.entries if e.form is not Form.FULL or e.parts != e.segment.parts]
        changed = {id(origin.message) for e in lowered if (origin := read_origin(e.segment)) is not None}
        sent = {id(turn) for turn in rendered[subject.turns]}
        if subject.name == "bedrock_converse":  # a question and the reminder before it are one message
            sent_blocks = {id(block) for turn in rendered["messages"] for block in turn["content"]}
            for turn in request["messages"]:
                if all(id(block) in sent_blocks for block in turn["content"]):
                    sent.add(id(turn))
        assert {id(turn) for turn in request[subject.turns]} - changed <= sent


def _is_valid(subject: Subject, rendered: Json) -> None:
    assert subject.dialect.wire.check(rendered) == []
    subject.validate(rendered)


@each_subject
@given(SEEDS, st.data(), st.sampled_from((None, 3000)))
def test_damaged_requests_are_sent_valid(
    subject: Subject, seed: int, data: st.DataObject, window: int | None
) -> None:
    request = copy.deepcopy(subject.conversation(seed))
    for damage in data.draw(st.lists(st.sampled_from(subject.damages), min_size=1, max_size=3)):
        if len(request[subject.turns]) > 1:
            damage(request[subject.turns], Random(seed))  # noqa: S311
    framed = subject.frame(request) if subject.frame else request
    may_refuse = () if subject.frame else (BadInput,)
    with suppress(BudgetExceeded, *may_refuse):
        envelope = subject.fitted(framed, window=window)
        rendered = subject.dialect.wire.render(envelope)
        _is_valid(subject, rendered)
        if window is None:
            assert subject.dialect.wire.render(subject.fitted(rendered)) == rendered


@each_subject
@given(SEEDS, st.integers(1, 8))
def test_a_memo_changes_nothing_and_keeps_the_segments(subject: Subject, seed: int, pieces: int) -> None:
    request, memo, parse = subject.conversation(seed), ParseMemo(), subject.dialect.wire.parse
    turns = request[subject.turns]
    before: list[Segment] = []
    for end in sorted({max(1, len(turns) * piece // pieces) for piece in range(1, pieces + 1)}):
        part = request | {subject.turns: copy.deepcopy(turns[:end])}
        now = parse(part, memo=memo)
        assert now == parse(part)
        # Reasoning at the end goes on with the next item. System text may stand beside the turns.
        steady = [each for each in before if each.kind != "thinking" or each is not before[-1]]
        spoken = [each for each in now.log if each.kind != "system"]
        assert all(one is other for one, other in zip(steady, spoken, strict=False))
        before = spoken


@each_subject
@given(SEEDS, st.integers(0, 9), st.sampled_from(("words", "role", "tool_call_id", "call_id", "tool_name")))
def test_a_turn_that_changed_under_a_memo_is_read_again(
    subject: Subject, seed: int, at: int, what: str
) -> None:
    request, memo, parse = copy.deepcopy(subject.conversation(seed)), ParseMemo(), subject.dialect.wire.parse
    parse(request, memo=memo)
    turn = request[subject.turns][at % len(request[subject.turns])]
    if what == "words":
        subject.change(turn)
    else:
        turn[what] = "user" if what == "role" else "changed"
    try:
        expected = parse(request)
    except BadInput:
        with pytest.raises(BadInput):
            parse(request, memo=memo)
        return
    assert parse(request, memo=memo) == expected


@each_subject
def test_an_old_object_that_its_owner_changed_is_not_sent(subject: Subject) -> None:
    memo, parse = ParseMemo(), subject.dialect.wire.parse
    old = copy.deepcopy(subject.conversation(3))
    parse(old, memo=memo)
    again = copy.deepcopy(old)
    for turn in old[subject.turns]:
        turn.clear()
    spoken = [segment for segment in parse(again, memo=memo).log if segment.kind != "system"]
    origins = [read_origin(segment) for segment in spoken]
    messages = [origin.message for origin in origins if origin is not None]
    assert messages
    assert all(any(message is turn for turn in again[subject.turns]) for message in messages)


@each_subject
def test_what_is_nested_for_ever_is_bad_input(subject: Subject) -> None:
    with pytest.raises(BadInput):
        subject.fitted(subject.mirror())
    with pytest.raises(BadInput):
        subject.dialect.cache.stream(subject.mirror())


@each_subject
def test_a_megabyte_of_one_character_is_read_like_any_text(subject: Subject) -> None:
    for letter in ("<", "{", "\\", ";", "a"):
        request = subject.flood(letter * 1_000_000)
        broken = {violation.rule for violation in subject.dialect.wire.check(request)}
        assert broken == subject.refused
        assert len(subject.dialect.wire.parse(request).log) == 4
