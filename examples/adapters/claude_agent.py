"""Transcripts of the Claude Agent SDK in a lamina store: mirrored, listed, and loaded by another program.

    pip install 'lamina-context[claude-agent]'
    python examples/adapters/claude_agent.py

No agent runs here, so no key is needed: `mirror` writes what the SDK would mirror. In your program the store
goes into the options: `ClaudeAgentOptions(session_store=LaminaSessionStore("chats.db"))`.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from lamina.adapters.claude_agent import LaminaSessionStore

KEY: Any = {"project_key": "shop", "session_id": "5a1c"}


async def mirror(address: str) -> None:
    store = LaminaSessionStore(address)
    for number in range(3):
        entry = {
            "type": "user",
            "uuid": f"u{number}",
            "message": {"role": "user", "content": f"Question {number}"},
        }
        await store.append(KEY, [entry])
        await store.append(KEY, [entry])  # sent again, stored once
    store.store.close()


async def resume(address: str) -> None:
    store = LaminaSessionStore(address)
    sessions = await store.list_sessions("shop")
    entries = await store.load(KEY) or []
    print(f"{len(sessions)} session with {len(entries)} entries")
    store.store.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "chats.db")
        await mirror(address)
        await resume(address)


if __name__ == "__main__":
    asyncio.run(main())
