"""The gateway describes its own paths, and what it describes is there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import lamina
from lamina.gateway.openapi import DOCUMENT_PATH, describe_gateway
from lamina.gateway.routes import match_route
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.upstream_stub import run_stub

PAGE = Path(__file__).parents[2] / "docs" / "gateway" / "api.md"


def test_every_described_page_answers_and_the_document_is_served() -> None:
    document = describe_gateway(lamina.__version__)

    async def main() -> None:
        async with run_stub() as stub, run_gateway(settings_for(stub)) as gateway, open_client() as client:
            async with client.get(f"{gateway.url}{DOCUMENT_PATH}") as answer:
                assert await answer.json() == document
            for path, operations in document["paths"].items():
                if "get" not in operations:
                    continue
                async with client.get(f"{gateway.url}{path}") as answer:
                    assert answer.status == 200, path
                    (media_type,) = operations["get"]["responses"]["200"]["content"]
                    assert answer.content_type == media_type
            assert stub.seen == []

    asyncio.run(main())


def test_the_routes_are_those_that_the_gateway_reads() -> None:
    for path, operations in describe_gateway("1")["paths"].items():
        if "post" in operations:
            action = match_route("POST", path.replace("{model}", "gemini-3-pro")).action
            summary = operations["post"]["summary"]
            assert {"Fitted": "generate", "Counted": "count"}[re.split("[: ]", summary)[0]] == action


def test_names_are_unique_and_the_page_has_every_path() -> None:
    paths = describe_gateway("1")["paths"]
    names = [operation["operationId"] for each in paths.values() for operation in each.values()]
    assert len(set(names)) == len(names)
    page = PAGE.read_text(encoding="utf-8")
    assert [path for path in paths if f"`{path}`" not in page] == []


def test_every_name_in_a_path_is_a_parameter() -> None:
    for path, operations in describe_gateway("1")["paths"].items():
        for operation in operations.values():
            parameters = [parameter["name"] for parameter in operation.get("parameters", ())]
            assert parameters == re.findall(r"{(\w+)}", path), path
