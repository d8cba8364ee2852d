"""An answer from search, with its sources: what is found stands before the question, and the answer cites it.

    python examples/agent_search.py           # a sample folder
    python examples/agent_search.py FOLDER    # the Markdown files of your own

Append the user's words, gather context, build, render, call the model, append its answer: the session and the
agent are these six steps. What finds context is a list; leave a source out and nothing else changes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import anyio
from anyio import to_thread

from lamina import Segment
from lamina.agent import Agent, open_for
from lamina.segments import excerpt
from lamina.stores import MemoryStore
from lamina.testing import ScriptedClient

PROMPT = "How many requests may I send?"
ANSWER = "20 a minute [[limits.md]]."
SAMPLE = "# Limits\n\nAt most 20 requests a minute.\n"


class Words:
    """A source that finds the lines which share a word with the prompt."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(self, prompt: str, _: int | None) -> Iterable[Segment]:
        return await to_thread.run_sync(self._found, {word.strip("?.,").lower() for word in prompt.split()})

    def _found(self, wanted: set[str]) -> list[Segment]:
        return [
            excerpt(line, source=path.name, place=str(number))
            for path in sorted(self._folder.glob("*.md"))
            for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
            if wanted & set(line.lower().split())
        ]


async def main(folder: str) -> None:
    agent = Agent(client=ScriptedClient([ANSWER]), cites=True)
    async with open_for(
        agent, MemoryStore(), "questions", model="gpt-5", sources=[Words(Path(folder))], persona="Be brief."
    ) as session:
        outcome = await agent.run(session, PROMPT)
        for said in session.dialogue():
            print(f"{said.role}: {said.text}")
    for citation in outcome.citations:
        print(f"source: {citation.source}, line {citation.place}")


def run_on_sample() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "limits.md").write_text(SAMPLE, encoding="utf-8")
        anyio.run(main, folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(main, sys.argv[1])
    else:
        run_on_sample()
