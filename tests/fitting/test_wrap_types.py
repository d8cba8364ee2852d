"""What a type checker knows of a wrapped client: everything that it knows of the client itself."""

from __future__ import annotations

from pathlib import Path

from mypy import api

SAMPLE = """
from anthropic import Anthropic
from openai import AsyncOpenAI

import lamina
from lamina.fitting import conversation, fitted_of, last_fitted

client = lamina.wrap(Anthropic(), store="chats.db")
reveal_type(client)
answer = client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
reveal_type(answer)
reveal_type(conversation(client, "support-42"))
reveal_type(fitted_of(client, answer))
reveal_type(last_fitted(client))
reveal_type(lamina.wrap(AsyncOpenAI()))
client.no_such_method()
"""


def test_the_client_keeps_its_type(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    output, _, _ = api.run([str(sample), "--no-incremental", "--follow-imports=silent", "--no-error-summary"])
    revealed = [line.split('"')[1] for line in output.splitlines() if "Revealed type" in line]
    assert revealed == [
        "anthropic._client.Anthropic",
        "anthropic.types.message.Message",
        "anthropic._client.Anthropic",
        "lamina.fitting.request.Fitted",
        "lamina.fitting.request.Fitted | None",
        "openai._client.AsyncOpenAI",
    ]
    (error,) = [line for line in output.splitlines() if "error:" in line]
    assert '"Anthropic" has no attribute "no_such_method"' in error
