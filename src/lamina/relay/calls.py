"""The three forms of a request on its way through the gateway: as it came, for its upstream, as it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

import msgspec

from lamina.conversations.recall_loop import RecallPlace, place_after, splice_exchanges
from lamina.conversations.record import is_compaction
from lamina.conversations.request_digests import RequestDigests
from lamina.conversations.store import changes_requests
from lamina.core.values import Cut, Ledger
from lamina.dialects.json_values import MODEL_FIELDS
from lamina.dialects.port import Dialect
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.fitting.request import Fitted, PassedRequest
from lamina.relay.conversation_index import ConversationMatch
from lamina.relay.identity import ClientIdentity
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.profiles import add_salt, apply_profile
from lamina.relay.request_bodies import RequestBody, encode_body
from lamina.relay.upstreams import Upstream


class IncomingRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request that may have to be fitted. `request` is the body, with the model if the path has it."""

    workspace: str
    identity: ClientIdentity
    dialect: Dialect
    upstream: Upstream
    body: RequestBody
    request: dict[str, Any]
    model: str


class FitBasis(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a request is fitted with: the ledger before it, and what was reported for the request before it.

    `passed` is the request before it in a conversation that has no ledger yet. If the upstream refuses what a
    request was fitted to, it is fitted again from the same basis: no model has seen the refused one.
    """

    ledger: Ledger | None = None
    usage: Usage | None = None
    passed: PassedRequest | None = None

    def find_new_cuts(self, ledger: Ledger) -> tuple[Cut, ...]:
        """The cuts that a ledger has and this basis has not."""
        if self.ledger is None:
            return ledger.cuts
        return ledger.cuts[len(self.ledger.cuts) :]


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What to send. Without a conversation, the request passes without a look at it."""

    request: Mapping[str, Any] = {}
    body: bytes | None = None
    """None if the bytes that came are sent."""

    betas: str = ""
    left_out: tuple[str, ...] = ()
    call: UpstreamCall | None = None
    """The request before it was fitted."""

    fitted: Fitted | None = None
    basis: FitBasis = FitBasis()
    why: str = ""
    """Why it is sent once more: after which refusal, or after a recall."""

    tried: tuple[str, ...] = ()
    """The refusals of this request for which a remedy was tried."""

    new_cuts: tuple[Cut, ...] = ()
    """The cuts that the last answered request did not have, changes of the caller among them."""

    new_segments: int = 0
    """How many segments the last answered request of the conversation did not have."""

    place: RecallPlace | None = None
    """Where the recalls of the model belong in it."""

    conversation: LiveConversation | None = None
    number: int = 0
    """Counts the requests of the conversation, so that a late report is not taken for a newer request."""

    is_near: bool = False
    """Whether the next request may be cut, so that what is reported for this one must not be lost."""

    sent_at: float = 0.0

    # The last request of the conversation that was answered.
    previous: Mapping[str, Any] | None = None
    previous_usage: Usage = NOTHING_REPORTED
    """What the upstream reported for it."""

    gap: float = 0.0
    """Seconds from when it was sent to when this one was."""

    @property
    def is_as_it_came(self) -> bool:
        """Whether the bytes that came are sent."""
        return self.body is None

    @property
    def is_whole(self) -> bool:
        """Whether the model reads what the client sent, all of it and no more. Cache markers may differ."""
        if self.call is not None and self.call.is_spliced:
            return False
        return self.fitted is None or not changes_requests(self.fitted.ledger)

    @property
    def cut(self) -> bool:
        """Whether lamina shortened something or left it out for this request."""
        return any(is_compaction(cut) for cut in self.new_cuts)

    @property
    def conversation_name(self) -> str:
        if self.conversation is None:
            return ""
        return self.conversation.name

    @property
    def own_names(self) -> frozenset[str]:
        """The names of the tools whose calls the gateway answers."""
        if self.fitted is None or self.place is None:
            return frozenset()
        return self.fitted.own_names

    @property
    def outcome(self) -> str:
        if self.is_as_it_came:
            return "unchanged"
        return "fitted"

    @property
    def predicted_read(self) -> int:
        """Tokens that the cache should give back: the whole last request, unless this one was cut."""
        if self.previous is None or self.cut:
            return 0
        return self.previous_usage.input


class UpstreamCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One request, with what its upstream cannot take left out of `request`.

    `is_spliced`: recalls are put back into it, which the client does not have.
    """

    incoming: IncomingRequest
    request: dict[str, Any]
    left_out: tuple[str, ...]
    is_spliced: bool = False

    def splice(self, match: ConversationMatch) -> UpstreamCall:
        """The request with the recalls of its conversation put back where they were."""
        exchanges = match.conversation.state.exchanges
        if not exchanges:
            return self
        spliced = splice_exchanges(self.request, exchanges, match.digests)
        if spliced is self.request:
            return self
        return msgspec.structs.replace(self, request=dict(spliced), is_spliced=True)

    def find_place(self, digests: RequestDigests) -> RecallPlace | None:
        """Where the recalls of the model belong in the client's request."""
        return place_after(self.incoming.request, digests)

    def unchanged(self) -> OutgoingRequest:
        """Send the request as it is here. Nobody knows its conversation."""
        return OutgoingRequest(
            body=self._find_body(self.request), request=self.request, left_out=self.left_out, call=self
        )

    def passed(
        self,
        conversation: LiveConversation,
        request: Mapping[str, Any],
        number: int,
        new_cuts: tuple[Cut, ...] = (),
    ) -> OutgoingRequest:
        """Send all of the request, and nothing that it does not say: this is how its markers were placed.

        `new_cuts` are changes of the caller.
        """
        return self._outgoing(conversation, number, request, new_cuts=new_cuts)

    def fitted(
        self, conversation: LiveConversation, fitted: Fitted, number: int, basis: FitBasis
    ) -> OutgoingRequest:
        """Send what the request was fitted to, from this basis."""
        new_cuts = basis.find_new_cuts(fitted.ledger)
        unanswered_cuts = fitted.ledger.cuts[conversation.answered_cuts :]
        return self._outgoing(
            conversation,
            number,
            fitted.request,
            new_cuts=max(new_cuts, unanswered_cuts, key=len),
            fitted=fitted,
            betas=next(iter(fitted.headers.values()), ""),
            basis=basis,
        )

    def _outgoing(
        self, conversation: LiveConversation, number: int, request: Mapping[str, Any], **more: Any
    ) -> OutgoingRequest:
        previous_usage = NOTHING_REPORTED
        gap = 0.0
        sent_at = monotonic()
        if conversation.request is not None:
            previous_usage = conversation.reported
            gap = sent_at - conversation.sent_at
        return OutgoingRequest(
            body=self._find_body(request),
            request=request,
            conversation=conversation,
            number=number,
            is_near=conversation.is_near or conversation.state.was_cut,
            left_out=self.left_out,
            call=self,
            sent_at=sent_at,
            previous=conversation.request,
            previous_usage=previous_usage,
            gap=gap,
            **more,
        )

    def _find_body(self, request: Mapping[str, Any]) -> bytes | None:
        """The body to send; None if it is the one that came."""
        if request is self.incoming.request:
            return None
        body = self.incoming.body
        fields = dict(request)
        for name in MODEL_FIELDS:
            if name not in body.request:  # the model came in the path, and goes there again
                fields.pop(name, None)
        return encode_body(fields, body)


def call_upstream(incoming: IncomingRequest, *, salted: bool) -> UpstreamCall:
    """A request without what its upstream cannot take. `salted`: workspaces must not share a cache.

    If the policy says so, its tools are deferred here, before anything else looks at them.
    """
    profile = incoming.upstream.profile
    profiled = apply_profile(profile, incoming.request, incoming.body.text)
    request = profiled.request
    deferred_request = incoming.upstream.settings.policy.defer_tools(request, incoming.dialect)
    if deferred_request is not request:
        request = dict(deferred_request)
    if profile.salts and salted:
        request = add_salt(request, incoming.workspace)
    return UpstreamCall(incoming=incoming, request=request, left_out=profiled.left_out)
