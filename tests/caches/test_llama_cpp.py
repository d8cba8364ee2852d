"""A real llama.cpp server, asked by the official clients through lamina, reports what the simulator says."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import msgspec
import pytest

from lamina import Budget
from lamina.caches import Cache, Tally, rules_for, simulator
from lamina.testing.model_server import PATIENCE, ModelServer, run_model_server
from tests.caches.streams import tokens as token_stream
from tests.talking import Answer, Speaker, Wire, listing

WINDOW, LETTER = 2560, 4
BUDGET = Budget(window=2400, reserve=64, keep_last=1)
"""Four of the files that each turn reads, so that there is a cut every few turns."""


class Talk:
    """One conversation of one SDK; `say` goes one turn on."""

    def __init__(self, sdk: str, server: ModelServer) -> None:
        self.speaker, self.wire, self.server = Speaker(sdk, is_async=False), Wire(), server
        self.history: list[Any] = []
        self.turn = self.cuts = 0

    async def say(self, client: Any) -> Reported:
        about = f"part_{self.turn}"
        self.history.append({"role": "user", "content": f"Explain {about}."})
        self.history.append(self.speaker.calling(self._message("Next."), f"c{self.turn}", f"src/{about}.py"))
        self.history.append(self.speaker.result(f"c{self.turn}", listing(about)))
        answer = await self.speaker.ask(client, self.history)
        self.history.append(answer.said)
        self.turn += 1
        self.cuts += client.fitted.envelope.cut is not None
        prompt = tokens(self.server, json.loads(self.wire.bodies[-1]))
        return Reported(prompt, [LETTER + byte for byte in letters(answer).encode()], answer)

    def _message(self, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}] if self.speaker.sdk == "anthropic" else text
        return {"role": "assistant", "content": content}


class Reported(NamedTuple):
    prompt: list[int]
    generated: list[int]
    answer: Answer


THOROUGH = [
    pytest.param(slots, turns, marks=pytest.mark.thorough) for slots, turns in ((1, 51), (2, 12), (2, 26))
]


@pytest.mark.parametrize(("slots", "turns"), [(1, 15), *THOROUGH])
def test_cached_tokens_are_what_the_server_reports(slots: int, turns: int) -> None:
    asyncio.run(compare(slots, turns))


async def compare(slots: int, turns: int) -> None:
    """Two conversations take turns in a random order: one continues, evicts, or brings back the other."""
    dice = random.Random(slots)  # noqa: S311
    cache = simulator(msgspec.structs.replace(rules_for("llama_cpp"), slots=slots))
    with run_model_server(window=WINDOW, slots=slots) as server:
        talks = [Talk("openai", server), Talk("anthropic", server)]
        order = [talk for talk in talks for _ in range(turns)]
        dice.shuffle(order)
        reported, simulated = [], []
        async with (
            talks[0].speaker.wrapped(server.url, talks[0].wire, budget=BUDGET) as chat,
            talks[1].speaker.wrapped(server.url, talks[1].wire, budget=BUDGET) as messages,
        ):
            for talk in order:
                prompt, generated, answer = await talk.say(chat if talk is talks[0] else messages)
                assert len(prompt) == answer.prompt
                reported.append(answer.cached)
                simulated.append(send(cache, prompt, generated).read)
    assert simulated == reported
    assert all(talk.cuts > turns // 10 and set(talk.wire.statuses) == {200} for talk in talks)


def test_random_prompts_are_cached_as_the_server_reports() -> None:
    dice = random.Random(5)  # noqa: S311
    cache = simulator(msgspec.structs.replace(rules_for("llama_cpp"), slots=3))
    earlier_prompts: list[list[int]] = [[]]
    with run_model_server(window=2048, slots=3) as server:
        for _ in range(120):
            start = dice.choice(earlier_prompts[-8:])
            new = [LETTER + dice.choice(b"abcd") for _ in range(dice.randrange(1, 300))]
            prompt = [*start[: dice.choice((len(start), dice.randrange(len(start) + 1)))], *new][:1900]
            body = {"prompt": prompt, "n_predict": dice.randrange(1, 8), "return_tokens": True}
            answer = post(server, "/completion", body)
            tally = send(cache, prompt, answer["tokens"])
            assert tally.read == answer["timings"]["cache_n"], tally.why
            earlier_prompts.append([*prompt, *answer["tokens"]])


def send(cache: Cache, prompt: list[int], generated: list[int]) -> Tally:
    """Send a prompt as its tokens. The server does not compute the last token of its answer."""
    return cache.send(token_stream(prompt), answer=token_stream(generated[:-1]).blocks)


def letters(answer: Answer) -> str:
    content = answer.said["content"] if isinstance(answer.said, dict) else answer.said.content
    return content if isinstance(content, str) else "".join(block.text for block in content)


def tokens(server: ModelServer, body: dict[str, Any]) -> list[int]:
    """The prompt that the server made of a request, as it would be tokenized."""
    messages = [part for message in body["messages"] for part in in_chat(message)]
    tools = [tool_in_chat(tool) for tool in body["tools"]]
    text = post(server, "/apply-template", {"messages": messages, "tools": tools})["prompt"]
    ids: list[int] = post(server, "/tokenize", {"content": text, "parse_special": True})["tokens"]
    return ids


def tool_in_chat(tool: dict[str, Any]) -> dict[str, Any]:
    if "function" in tool:
        return tool
    named = {"name": tool["name"], "description": tool["description"]}
    return {"type": "function", "function": {**named, "parameters": tool["input_schema"]}}


def in_chat(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message of either API in the words of chat completions, as the server reads it."""
    if not isinstance(message["content"], list):
        return [message]
    entry: dict[str, Any] = {"role": message["role"], "content": "", "tool_calls": []}
    results = []
    for block in message["content"]:
        if block["type"] == "text":
            entry["content"] += block["text"]
        elif block["type"] == "tool_use":
            function = {"name": block["name"], "arguments": json.dumps(block["input"])}
            entry["tool_calls"].append({"id": block["id"], "type": "function", "function": function})
        else:
            content = block["content"]
            text = content if isinstance(content, str) else "".join(inner["text"] for inner in content)
            results.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text})
    if not entry["tool_calls"]:
        del entry["tool_calls"]
    return [*results, *([entry] if entry["content"] or "tool_calls" in entry else [])]


def post(server: ModelServer, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=PATIENCE) as response:  # noqa: S310 - an address of this machine
        answer: dict[str, Any] = json.load(response)
        return answer
