"""The page of the gateway's paths says what becomes of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamina.relay.routes import match_route
from tests.gateway.running import proxied

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"


def list_rows(head: str) -> dict[str, str]:
    """The paths of the table under this head, each with the first word that the page says of it."""
    table = PAGE.read_text(encoding="utf-8").partition(head)[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| \W*(\w+)", table, re.MULTILINE))


async def test_every_own_path_on_the_page_is_answered_by_the_gateway() -> None:
    paths = list_rows("| path | gives | token |")
    assert len(paths) == 4
    async with proxied() as (stub, gateway, client):
        for path in paths:
            async with client.get(f"{gateway.url}{path}") as answer:
                assert answer.status == 200, path
        assert stub.seen == []


def test_the_page_says_which_requests_are_read() -> None:
    rows = list_rows("| path | what becomes of the request |")
    assert len(rows) == 10
    actions = {"fitted": "generate", "counted": "count"}
    for path, word in rows.items():
        assert match_route("POST", path.replace("{model}", "gemini-3-pro")).action == actions[word], path
