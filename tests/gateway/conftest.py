"""Tests of the gateway are coroutines, and each runs in an event loop of its own."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
