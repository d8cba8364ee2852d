"""What a memo of rendering reuses is what would be written without it, whatever happened in between."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from lamina import Budget, BuildMemo, Envelope, LaminaError, Ledger, RequestHead, Segment, build, segments
from lamina.core import Image, Text, ToolResult
from lamina.dialects import DIALECTS, Dialect
from lamina.dialects.render_memo import RenderMemo
from lamina.dialects.sending import settle_repairs
from lamina.dialects.translate import choose_options

ERASED = "what lies in the third drawer"
MODELS = {
    "anthropic": "claude-opus-4-8",
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5",
    "gemini": "gemini-3-pro",
    "bedrock_converse": "anthropic.claude-sonnet-4-5",
    "ollama": "llama3.1",
}


class Talk:
    """A conversation that changes in every way that a session can change one."""

    def __init__(self, dialect: Dialect, random: Random) -> None:
        self.dialect = dialect
        self.random = random
        self.log: list[Segment] = [segments.system("You review code.")]
        self.ledger = Ledger()
        self.forks: list[tuple[list[Segment], Ledger]] = []
        self.build_memo = BuildMemo()
        self.render_memo = RenderMemo()
        self.number = 0

    def words(self) -> str:
        self.number += 1
        return (
            f"{self.number} src/client_{self.number % 7}.py: "
            + "retry the request. " * self.random.randrange(40)
        )

    def say(self, moves: int) -> None:
        usual = (self.turn, self.turn, self.step, self.step, self.system, self.note)
        rare = (self.odd, self.rewind, self.edit, self.pin, self.fork)
        for _ in range(moves):
            self.random.choice((*usual, *usual, *rare))()
        self.log.append(segments.user(self.words()))

    def turn(self) -> None:
        self.log += [segments.user(self.words()), segments.assistant(self.words())]

    def step(self) -> None:
        ids = [f"c{self.number}_{place}" for place in range(self.random.randrange(1, 3))]
        if self.random.random() < 0.3:
            ids = ["same"]
        self.log.append(segments.assistant(self.words()))
        self.log += [segments.call("fs.read", {"path": self.words()}, id=call_id) for call_id in ids]
        for call_id in ids[self.random.random() < 0.2 :]:
            self.log.append(segments.result(self.words(), id=call_id, name="fs.read"))
        last = self.log[-1].parts[0]
        if isinstance(last, ToolResult) and self.random.random() < 0.2:
            picture = Image(media_type="image/png", data="iVBORw0KGgo=")
            part = msgspec.structs.replace(last, content=(Text("a picture"), picture))
            self.log[-1] = msgspec.structs.replace(self.log[-1], parts=(part,))

    def system(self) -> None:
        self.log.append(segments.system(self.words(), key=f"rules-{self.number % 3}"))

    def note(self) -> None:
        self.log.append(segments.note("docs/spec.md", self.words()))

    def odd(self) -> None:
        text = self.random.choice([" ", "?"])
        self.log.append(self.random.choice([segments.assistant(text), segments.user(text)]))

    def rewind(self) -> None:
        del self.log[max(1, len(self.log) - self.random.randrange(1, 8)) :]

    def edit(self) -> None:
        place = self.random.randrange(len(self.log))
        if isinstance(self.log[place].parts[0], Text):
            self.log[place] = msgspec.structs.replace(self.log[place], parts=(Text(self.words()),))

    def pin(self) -> None:
        place = self.random.randrange(len(self.log))
        self.log[place] = msgspec.structs.replace(self.log[place], pinned=True)

    def fork(self) -> None:
        """Go on from an earlier state, with the memos of this one."""
        self.forks.append((list(self.log), self.ledger))
        log, self.ledger = self.random.choice(self.forks)
        self.log = list(log)

    def build(self) -> Envelope | None:
        """The next request; None if there is none for this log. Some are cut."""
        head = RequestHead(parameters={"model": MODELS[self.dialect.name]})
        budget = Budget(window=self.random.choice([1_500, 10_000, 1_000_000]), reserve=0)
        options = choose_options(self.dialect, head)
        try:
            envelope = build(
                self.log, head=head, budget=budget, ledger=self.ledger, memo=self.build_memo, options=options
            )
        except LaminaError:
            return None
        envelope = settle_repairs(envelope, self.dialect, before=self.ledger.mark, memo=self.build_memo)
        self.ledger = envelope.ledger
        return envelope


def render(dialect: Dialect, envelope: Envelope, memo: RenderMemo | None) -> dict[str, Any] | str:
    try:
        return dialect.wire.render(envelope, memo)
    except LaminaError as error:
        return str(error)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_request_is_written_alike_with_a_memo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    resume = RenderMemo.resume

    def note_start(memo: RenderMemo, envelope: Envelope, writer: Any) -> int:
        starts.append(resume(memo, envelope, writer))
        return starts[-1]

    monkeypatch.setattr(RenderMemo, "resume", note_start)
    for seed in range(4):
        talk = Talk(DIALECTS[name], Random(seed))  # noqa: S311 - made-up talk
        for _ in range(20):
            talk.say(talk.random.randrange(4))
            envelope = talk.build()
            if envelope is None:
                continue
            request = render(talk.dialect, envelope, talk.render_memo)
            assert msgspec.json.encode(request) == msgspec.json.encode(render(talk.dialect, envelope, None))
            if isinstance(request, dict) and talk.random.random() < 0.2:
                spoil(request, talk.random)
    assert len(starts) - starts.count(0) > 10


def spoil(request: dict[str, Any], random: Random) -> None:
    """Change a request that was written, as a client does that puts something into it before it sends it."""
    for field in ("messages", "input", "contents"):
        if isinstance(request.get(field), list) and request[field]:
            message = random.choice(request[field])
            message["role"] = "changed"
            for block in message.get("content", message.get("parts")) or ():
                if isinstance(block, dict):
                    block["added"] = 1
            request[field].append({"role": "user", "content": "put here by the client"})


def test_an_erased_text_is_in_no_memo_after_the_next_request() -> None:
    talk = Talk(DIALECTS["anthropic"], Random(1))  # noqa: S311 - made-up talk
    for text in ("Hello", ERASED, "Go on", "And now"):
        talk.log += [segments.user(text), segments.assistant("Yes."), segments.user("So?")]
        render_now(talk)
        talk.log += [segments.assistant("So.")]
    assert ERASED in held_texts(talk.render_memo)
    talk.log = [segment for segment in talk.log if segment.parts != (Text(ERASED),)]
    talk.log += [segments.user("What now?")]
    render_now(talk)
    assert ERASED not in held_texts(talk.render_memo)


def render_now(talk: Talk) -> None:
    envelope = talk.build()
    assert envelope is not None
    render(talk.dialect, envelope, talk.render_memo)


def held_texts(memo: RenderMemo) -> str:
    return repr(vars(memo))
