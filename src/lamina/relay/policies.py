"""Chooses the policy for each request: that of its upstream, less what the request or its server cannot take.

What an upstream has refused, the windows that local servers list and the pauses of clients are learnt while
the gateway runs. Nothing of it is stored: a gateway that starts anew learns anew.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from anyio import to_thread

from lamina.caches import rules_for
from lamina.conversations.recall_answers import CALL_LISTS
from lamina.conversations.store import ConversationState
from lamina.core.cut_target import reserve
from lamina.core.tokens import Counter
from lamina.core.values import Budget
from lamina.dialects.json_values import read_field
from lamina.fitting.markers import LATE, Breakpoints, has_marker, keeps_only_marked, resolve_lifetimes
from lamina.fitting.policy import Policy, RecallMode
from lamina.fitting.request import reserve_output
from lamina.models.facts import choose_window as choose_served_window
from lamina.models.facts import read_served_windows
from lamina.relay.calls import IncomingRequest, OutgoingRequest
from lamina.relay.config import OWN_SERVERS
from lamina.relay.sizes import ChosenWindow, choose_window, find_budget
from lamina.relay.upstreams import Upstream


class RequestPolicies:
    """Chooses how each request is fitted, for all requests of one gateway process.

    Nothing here looks for a counter but `find_counter`: to load a tokenizer takes seconds, so that is called
    in a thread.
    """

    def __init__(self, windows: ServedWindows) -> None:
        self.pauses = PauseBook()
        self.windows = windows
        self._without_switch: set[tuple[str, str]] = set()  # upstream and model, after a refusal

    def choose(self, incoming: IncomingRequest, budget: Budget) -> Policy:
        """The policy for this request, with this budget.

        Markers get the lifetime for which the pauses of this client speak.
        """
        breakpoints = resolve_lifetimes(
            choose_breakpoints(incoming),
            self.pauses.list_pauses(incoming),
            rules_for(incoming.model, dialect=incoming.dialect.name),
            incoming.model,
        )
        return msgspec.structs.replace(
            incoming.upstream.settings.policy,
            budget=budget,
            breakpoints=breakpoints,
            recall=_choose_recall_mode(incoming),
        )

    def find_counter(self, incoming: IncomingRequest) -> Counter:
        return incoming.upstream.settings.policy.find_counter(incoming.model)

    def find_budget(self, incoming: IncomingRequest, state: ConversationState) -> Budget:
        """The budget of a request of this conversation, which may have met a smaller window before."""
        reported_window = state.windows.get(incoming.model)
        served_window = self.windows.find(incoming.upstream, incoming.model)
        settings = incoming.upstream.settings
        dialect = incoming.dialect.name
        budget = find_budget(
            settings, incoming.model, reported_window, served_window=served_window, dialect=dialect
        )
        return settings.policy.price_budget(budget, incoming.model, dialect=dialect)

    def find_window(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> ChosenWindow | None:
        """The window that a request was fitted into; None if it was passed without a look."""
        if outgoing.conversation is None:
            return None
        reported_window = outgoing.conversation.state.windows.get(incoming.model)
        served_window = self.windows.find(incoming.upstream, incoming.model)
        window = choose_window(
            incoming.upstream.settings,
            incoming.model,
            reported_window,
            served_window=served_window,
            dialect=incoming.dialect.name,
        )
        if outgoing.fitted is None:
            return window
        head = outgoing.fitted.envelope.head
        budget = self.find_budget(incoming, outgoing.conversation.state)
        return window._replace(reserve=reserve(reserve_output(budget, head, incoming.dialect), head))

    def forgo_switch(self, incoming: IncomingRequest) -> None:
        """Ask this upstream no more to drop unbound thinking, for this model: it has refused the switch."""
        self._without_switch.add((incoming.upstream.name, incoming.model))

    def may_drop_thinking(self, incoming: IncomingRequest) -> bool:
        """Whether the upstream may be asked to drop unbound thinking. One without betas has no switch."""
        upstream = incoming.upstream
        if upstream.profile.drops_betas:
            return False
        return (upstream.name, incoming.model) not in self._without_switch


def _choose_recall_mode(incoming: IncomingRequest) -> RecallMode:
    """How the model can have again what was lowered. Where nothing answers, no handle is shown.

    With "handles", a tool of the client's own answers, such as that of `lamina mcp`.
    """
    mode = incoming.upstream.settings.policy.recall_mode("tool")
    if mode == "tool" and not _takes_recall_tool(incoming):
        return "off"
    return mode


def _takes_recall_tool(incoming: IncomingRequest) -> bool:
    """Whether a request may get a tool of the gateway's own. `HeadShape.takes_tool` has the API's rules."""
    if incoming.dialect.name not in CALL_LISTS:
        return False
    if incoming.request.get("tools") or read_field(incoming.request.get("toolConfig"), "tools"):
        return True
    if incoming.dialect.name == "bedrock_converse":
        return False  # some models of Bedrock refuse every request that defines a tool
    # Its model may not know tools, so it gets the recall tool only beside tools of the client.
    return incoming.upstream.settings.profile not in OWN_SERVERS


PAUSES = 200
"""Pauses of one kind of client that are remembered: the newest."""

MOST_KINDS = 1_000
"""Kinds of clients that are remembered. The one that was not seen for longest is forgotten first."""


class PauseBook:
    """The last pauses of each kind of client, from which lifetimes of caches are chosen.

    A kind of client is a program in one workspace with one model: Claude Code pauses for a person, its
    sub-agents only for tools, and each of them has a conversation of its own.
    """

    def __init__(self) -> None:
        self._pauses: OrderedDict[tuple[str, str, str, bool], deque[float]] = OrderedDict()

    def add(self, incoming: IncomingRequest, seconds: float) -> None:
        """A client came back after so many seconds."""
        key = _kind_of(incoming)
        if key not in self._pauses:
            self._pauses[key] = deque(maxlen=PAUSES)
        self._pauses[key].append(seconds)
        self._pauses.move_to_end(key)
        if len(self._pauses) > MOST_KINDS:
            self._pauses.popitem(last=False)

    def list_pauses(self, incoming: IncomingRequest) -> Sequence[float]:
        """The last pauses of the kind of client that sent this request, in seconds."""
        return tuple(self._pauses.get(_kind_of(incoming), ()))


def _kind_of(incoming: IncomingRequest) -> tuple[str, str, str, bool]:
    """The workspace, the program, the model, and whether it is a part of another conversation."""
    program = incoming.identity.group.partition(":")[0]
    return incoming.workspace, program, incoming.model, bool(incoming.identity.parent)


_MARKER_NAMES = (b'"cache_control"', b'"cachePoint"')
"""Every marker has one of these. Inside a text the quotes are escaped, so a text about markers has none."""


def choose_breakpoints(incoming: IncomingRequest) -> Breakpoints:
    """What `fit_request` does with the markers of a request."""
    setting = incoming.upstream.settings.policy.breakpoints
    if setting == "auto" and not incoming.upstream.profile.reads_markers:
        return "keep"
    return setting


def plans_markers(incoming: IncomingRequest) -> bool:
    """Whether the markers of a request change, so that its bytes cannot leave as they came.

    This is asked of every request, so it looks at bytes first and at blocks only if it must.
    """
    breakpoints = choose_breakpoints(incoming)
    if breakpoints != "auto":
        return breakpoints != "keep"
    return lacks_markers(incoming)


def lacks_markers(incoming: IncomingRequest) -> bool:
    """Whether a request marks nothing for a cache that keeps only what is marked."""
    markers = incoming.dialect.cache.markers
    if markers is None:
        return False
    rules = rules_for(incoming.model, dialect=incoming.dialect.name)
    if markers.cache != rules.match or not keeps_only_marked(rules):
        return False  # this API cannot mark what that cache reads, or need not
    text = incoming.body.text
    # A text has no more tokens than bytes, so this one is too short for the cache.
    if len(text) < rules.least(incoming.model):
        return False
    if not any(name in text for name in _MARKER_NAMES):
        return True
    return not (_has_late_marker(incoming) or has_marker(incoming.request, incoming.dialect))


def _has_late_marker(incoming: IncomingRequest) -> bool:
    """Whether one of the last messages has a marker, where most clients have one. Only those are read."""
    sources, turns, _ = incoming.body.decoded
    named_turns: list[Any] = []
    for source, turn in zip(sources[-LATE:], turns[-LATE:], strict=True):
        if any(name in source for name in _MARKER_NAMES):
            named_turns.append(turn)
    return bool(named_turns) and has_marker({"messages": named_turns}, incoming.dialect)


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
    """The windows that upstreams have listed: vLLM and llama.cpp do so at `GET /v1/models`.

    They are asked when a request comes and neither the settings nor an earlier answer say how large the
    window is, and again after a while if the server does not answer in time, or lists no window. Until then
    the table of models and the settings hold. `fetch` and `now` are replaced in tests.
    """

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
        return choose_served_window(self._windows.get(upstream.name, {}), model)


def _fetch_listing(address: str, headers: dict[str, str]) -> Any:
    """What a server lists, None if it does not answer."""
    try:
        request = Request(address, headers=headers)  # noqa: S310 - an upstream of the settings
        with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as reply:
            return json.loads(reply.read(LONGEST))
    except (URLError, OSError, ValueError, RecursionError):
        return None
