"""Against a real server whose model has random weights: its words must be refused, and the digest used."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from anyio import to_thread

from lamina.core.values import Budget
from lamina.core.wording import text_of
from lamina.dialects.openai_chat.render import render
from lamina.stores.memory import MemoryStore
from lamina.summarize import Asked, compact
from lamina.testing.upstream import COUNTER, MODEL, Upstream, upstream
from tests.session.talking import awaited, opened
from tests.test_summarize_session import played


class Letters:
    """Asks the server, and remembers what it answered and how much of each prompt it had cached."""

    def __init__(self, server: Upstream) -> None:
        self.url = f"{server.url}/v1/chat/completions"
        self.answers: list[str] = []
        self.cached: list[int] = []

    async def __call__(self, asked: Asked) -> str:
        body = render(asked.envelope) | {"max_tokens": 40}
        answer = await to_thread.run_sync(self.post, body)
        self.answers.append(answer["choices"][0]["message"]["content"])
        return self.answers[-1]

    def post(self, body: dict[str, Any]) -> Any:
        sent = Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
        with urlopen(sent, timeout=60) as reply:  # noqa: S310 - an address of this machine
            answer = json.load(reply)
        self.cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        return answer


@awaited
async def test_random_words_are_refused_and_the_digest_is_recorded() -> None:
    budget = Budget(window=16_384, reserve=0, keep_last=1)
    given: dict[str, Any] = {"model": MODEL, "dialect": "openai_chat", "budget": budget, "counter": COUNTER}
    with upstream(window=16_384) as server:
        async with opened(MemoryStore(), **given) as session:
            write = Letters(server)
            talked = await played(session, 12)
            before = await session.build()
            await to_thread.run_sync(write.post, (await session.request()) | {"max_tokens": 1})
            made = await compact(talked, write)
            assert all(answer.isalpha() for answer in write.answers)
            assert (made.by, made.asked, len(write.answers)) == ("digest", 2, 2)
            assert made.notes == ("the model's summary was not used: it speaks of something else",)
            assert write.cached[1] >= before.tokens * 0.9  # the question continues the last request
            assert write.answers[0] not in text_of(session.log[-1].parts)
            await session.ask("Go on.")
            await to_thread.run_sync(write.post, (await session.request()) | {"max_tokens": 1})
