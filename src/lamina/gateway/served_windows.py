"""Asks local servers for their context windows: vLLM and llama.cpp list them at `GET /v1/models`.

The gateway asks when a request comes and neither the settings nor an earlier answer say how large the window
is. It asks again after a while if the server does not answer in time, or lists no window. Until then it goes
by its table of models and its settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import inf
from time import monotonic
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from anyio import to_thread

from lamina.gateway.upstreams import Upstream
from lamina.models.served_windows import choose_window, read_served_windows

LOCAL_PROFILES = frozenset(("llama.cpp", "vllm"))
"""Profiles of servers whose operator chose the window."""

PATIENCE = 2.0
"""Seconds that a request waits for the answer."""

PAUSE = 60.0
"""Seconds until a server that listed no window is asked again."""

LONGEST = 1 << 20
"""Bytes of an answer that are read."""

FetchListing = Callable[[str, dict[str, str]], Any]


class ServedWindows:
    """The windows that upstreams have listed. `fetch` and `now` are replaced in tests."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        fetch: FetchListing | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._environment = environment
        self._fetch = fetch or _fetch_listing
        self._now = now
        self._windows: dict[str, dict[str, int]] = {}
        self._asked: dict[str, float] = {}

    async def ask(self, upstream: Upstream, model: str) -> None:
        """Ask a local server for its windows, unless they are known or were asked for a moment ago."""
        settings = upstream.settings
        if settings.profile not in LOCAL_PROFILES or settings.policy.own_budget is not None:  # it is known
            return
        if self.find(upstream, model) is not None:
            return
        last_asked = self._asked.get(upstream.name, -inf)
        if self._now() - last_asked < PAUSE:
            return
        self._asked[upstream.name] = self._now()
        headers = {}
        key = self._environment.get(settings.key_env, "")
        if key:
            headers["Authorization"] = f"Bearer {key}"
        address = f"{settings.url.rstrip('/').removesuffix('/v1')}/v1/models"
        listing = await to_thread.run_sync(self._fetch, address, headers)
        windows = read_served_windows(listing)
        if windows:
            self._windows[upstream.name] = windows

    def find(self, upstream: Upstream, model: str) -> int | None:
        """The window that an upstream has listed for a model; None if it has not."""
        return choose_window(self._windows.get(upstream.name, {}), model)


def _fetch_listing(address: str, headers: dict[str, str]) -> Any:
    """What a server lists, None if it does not answer."""
    try:
        request = Request(address, headers=headers)  # noqa: S310 - an upstream of the settings
        with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as reply:
            return json.loads(reply.read(LONGEST))
    except (URLError, OSError, ValueError, RecursionError):
        return None
