"""Chooses the policy for each request: that of its upstream, less what the request or its server cannot take.

What an upstream has refused, the windows that local servers list and the pauses of clients are learnt while
the gateway runs. Nothing of it is stored: a gateway that starts anew learns anew.
"""

from __future__ import annotations

import msgspec

from lamina.caches import rules_for
from lamina.conversations.recall_answers import CALL_LISTS
from lamina.conversations.store import ConversationState
from lamina.core.tokens import Counter
from lamina.core.values import Budget
from lamina.dialects.json_values import read_field
from lamina.fitting.markers import Breakpoints, resolve_lifetimes
from lamina.fitting.policy import Policy, RecallMode
from lamina.gateway.calls import IncomingRequest, OutgoingRequest
from lamina.gateway.config import OWN_SERVERS
from lamina.gateway.marker_modes import choose_breakpoints
from lamina.gateway.pauses import PauseBook
from lamina.gateway.served_windows import ServedWindows
from lamina.gateway.sizes import ChosenWindow, choose_window, find_budget

SERVER_STATE = ("previous_response_id", "conversation")
"""Fields of a request whose history the upstream has. Nothing can be put back into a history there."""


class RequestPolicies:
    """Chooses how each request is fitted, for all requests of one gateway process."""

    def __init__(self, windows: ServedWindows) -> None:
        self.pauses = PauseBook()
        self._windows = windows
        self._without_switch: set[tuple[str, str]] = set()  # upstream and model, after a refusal

    def choose(self, incoming: IncomingRequest, budget: Budget) -> Policy:
        """The policy for this request, with this budget."""
        return msgspec.structs.replace(
            incoming.upstream.settings.policy,
            budget=budget,
            counter=self.find_counter(incoming),
            breakpoints=self._choose_breakpoints(incoming),
            recall=_choose_recall_mode(incoming),
        )

    def find_counter(self, incoming: IncomingRequest) -> Counter:
        return incoming.upstream.settings.policy.find_counter(incoming.model)

    def find_budget(self, incoming: IncomingRequest, state: ConversationState) -> Budget:
        """The budget of a request of this conversation, which may have met a smaller window before."""
        reported_window = state.windows.get(incoming.model)
        served_window = self._windows.find(incoming.upstream, incoming.model)
        settings = incoming.upstream.settings
        budget = find_budget(settings, incoming.model, reported_window, served_window=served_window)
        return settings.policy.price_budget(budget, incoming.model, dialect=incoming.dialect.name)

    def find_window(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> ChosenWindow | None:
        """The window that a request was fitted into; None if it was passed without a look."""
        if outgoing.conversation is None:
            return None
        reported_window = outgoing.conversation.state.windows.get(incoming.model)
        served_window = self._windows.find(incoming.upstream, incoming.model)
        return choose_window(
            incoming.upstream.settings, incoming.model, reported_window, served_window=served_window
        )

    async def learn_window(self, incoming: IncomingRequest) -> None:
        """Ask a local server for its windows, where nobody has said how large they are."""
        await self._windows.ask(incoming.upstream, incoming.model)

    def forgo_switch(self, incoming: IncomingRequest) -> None:
        """Ask this upstream no more to drop unbound thinking, for this model: it has refused the switch."""
        self._without_switch.add((incoming.upstream.name, incoming.model))

    def may_drop_thinking(self, incoming: IncomingRequest) -> bool:
        """Whether the upstream may be asked to drop unbound thinking. One without betas has no switch."""
        upstream = incoming.upstream
        if upstream.profile.drops_betas:
            return False
        return (upstream.name, incoming.model) not in self._without_switch

    def _choose_breakpoints(self, incoming: IncomingRequest) -> Breakpoints:
        """What to do with cache markers, with the lifetime for which the pauses of this client speak."""
        return resolve_lifetimes(
            choose_breakpoints(incoming),
            self.pauses.list_pauses(incoming),
            rules_for(incoming.model, dialect=incoming.dialect.name),
            incoming.model,
        )


def find_server_conversation(incoming: IncomingRequest) -> str:
    """The field by which a request continues what only the server has; "" if it has none.

    Such a request has the new items only. Nobody here knows how long the whole is, and a cut could take away
    what the server's part refers to. So it passes as it came.
    """
    if incoming.dialect.name != "openai_responses":
        return ""
    return _find_server_state(incoming)


def _find_server_state(incoming: IncomingRequest) -> str:
    for field in SERVER_STATE:
        if incoming.request.get(field):
            return field
    return ""


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
    if _find_server_state(incoming):
        return False
    if incoming.request.get("tools") or read_field(incoming.request.get("toolConfig"), "tools"):
        return True
    if incoming.dialect.name == "bedrock_converse":
        return False  # some models of Bedrock refuse every request that defines a tool
    # Its model may not know tools, so it gets the recall tool only beside tools of the client.
    return incoming.upstream.settings.profile not in OWN_SERVERS
