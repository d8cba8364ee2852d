"""A secret that went through a running gateway is in no file after it was deleted; the gateway goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lamina.conversations.deleting import delete_conversation
from lamina.conversations.erasing import delete_message
from lamina.conversations.listing import list_names
from lamina.conversations.store import read_record
from lamina.stores.address import open_store
from tests.gateway.growing import dump, messages_request
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_record import ALL, post
from tests.gateway.upstream_stub import SeenRequest, response, run_stub

PROMPT = "pw-prompt-33d1"
RESULT = "pw-result-77f0"
ANSWER = "pw-answer-9e2c"
SECRETS = (PROMPT, RESULT, ANSWER)


def make_request(steps: int) -> dict[str, Any]:
    """A request with a secret in the first prompt and in the second result."""
    request = messages_request(steps, task=f"Log in with {PROMPT}.")
    for message in request["messages"][4:5]:
        message["content"][0]["content"] = f"token = {RESULT}\n" + message["content"][0]["content"]
    return request


async def answer_with_secret(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
    """An answer that says the third secret."""
    usage = {"input_tokens": 90, "output_tokens": 5}
    content = [{"type": "text", "text": f"It says {ANSWER}."}]
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-5"}
    body = dump(message | {"content": content, "stop_reason": "end_turn", "usage": usage})
    writer.write(response(200, "application/json", body))
    await writer.drain()


def find_secrets(folder: Path) -> list[str]:
    files: Iterator[Path] = (path for path in folder.rglob("*") if path.is_file())
    return [
        f"{path.name}: {secret}"
        for path in files
        for secret in SECRETS
        if secret.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize("keep", ["all", "lowered"])
@pytest.mark.parametrize("way", ["conversation", "message"])
def test_a_secret_is_deleted_while_the_gateway_runs(tmp_path: Path, way: str, keep: str) -> None:
    store = tmp_path / "gateway.db"

    async def main() -> None:
        async with (
            run_stub() as stub,
            run_gateway(settings_for(stub, store, **ALL | {"keep": keep})) as gateway,
            open_client() as client,
            open_store(str(store)) as opened,
        ):
            for steps in (0, 2, 14, 18):
                stub.play(answer_with_secret)
                await post(client, gateway.url, make_request(steps))
            [name] = await list_names(opened, "")
            assert find_secrets(tmp_path)
            if way == "conversation":
                await delete_conversation(opened, "", name)
            else:
                stored = {entry.partition(": ")[2] for entry in find_secrets(tmp_path)}
                assert stored == {*SECRETS} or (keep == "lowered" and RESULT in stored)
                for secret in stored:
                    await delete_message(opened, "", name, text=secret)
            assert find_secrets(tmp_path) == []
            status, _ = await post(client, gateway.url, messages_request(18, task="Log in."))
            assert status == 200
            assert find_secrets(tmp_path) == []
            for other in await list_names(opened, ""):
                record = await read_record(opened, "default", other)
                for call in record.calls:
                    body = record.came_body(call)
                    if body:
                        assert json.loads(body)["messages"]

    asyncio.run(main())
