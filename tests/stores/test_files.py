from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lamina.stores import Store, open_files
from lamina.testing import Conformance, store
from tests.stores.files_disk import in_memory


@asynccontextmanager
async def opened(folder: str) -> AsyncIterator[Store]:
    async with open_files(folder) as opened_store:
        yield opened_store


@pytest.mark.parametrize("case", store(opened, many=2000), ids=str)
def test_files(case: Conformance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", in_memory())
    case()
