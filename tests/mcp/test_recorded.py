"""The library reads what a door has recorded: from the requests, or from what was left out."""

from __future__ import annotations

import anyio
import pytest

from lamina.errors import NotFound
from lamina.mcp.library import open_library
from lamina.stores import MemoryStore
from tests.conversations.recorded import ANSWER, PROMPT, RESULT, record_talk

TALK = "claude-code-5f0c1b7a"


@pytest.mark.parametrize("keep", ["all", "lowered"])
def test_what_a_digest_stands_for_is_recalled(keep: str) -> None:
    async def recall() -> None:
        store = MemoryStore()
        await record_talk(store, keep=keep)
        async with open_library(store) as library:
            text = await library.recall("fold-1", conversation=TALK)
            assert PROMPT in text
            assert RESULT in text
            assert ANSWER in text
            assert TALK in await library.search("what did the file say?")
            assert "cut 1: over the trigger" in await library.explain(conversation=TALK)

    anyio.run(recall)


def test_a_conversation_that_goes_on_is_read_again() -> None:
    async def recall() -> None:
        store = MemoryStore()
        await record_talk(store)
        async with open_library(store) as library:
            with pytest.raises(NotFound):
                await library.recall("kzzzzzzzzzzzzzzzz", conversation=TALK)
            assert "nothing else" in await library.search("thank you, nothing else")

    anyio.run(recall)
