"""What became of a client's session: both sides of the gateway, compared request by request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, count_shared_links, digest_log
from lamina.core.values import Role
from lamina.dialects import DIALECTS, Dialect
from lamina.relay.routes import match_route
from tools.clients.recorder import Recorded
from tools.clients.upstream import OWN_TOOLS, Arrived, list_tools


class Share(NamedTuple):
    """How many of how many."""

    good: int
    total: int

    def __str__(self) -> str:
        return f"{self.good:,} of {self.total:,}"

    @property
    def is_whole(self) -> bool:
        return self.good == self.total


class SessionMeasures(NamedTuple):
    """The figures of one client. Each share should be whole, and `refused` 0.

    `refused_directly` are requests that left as the client wrote them, and that its API refuses all the same.
    Claude Code, for one, sends its last thinking after a summary, and then once more without it.
    """

    requests: int
    identical: Share
    cuts: int
    refused: int
    refused_directly: int
    kept: Share
    told_apart: Share
    recalls: Share
    kept_after_recall: Share
    valid_directly: Share
    hidden: Share

    @property
    def is_good(self) -> bool:
        shares = (
            self.identical,
            self.kept,
            self.told_apart,
            self.recalls,
            self.kept_after_recall,
            self.valid_directly,
            self.hidden,
        )
        return not self.refused and all(share.is_whole for share in shares)


def measure_session(
    recorded: Sequence[Recorded], arrived: Sequence[Arrived], events: Sequence[dict[str, Any]]
) -> SessionMeasures:
    """Compare what a client sent with what arrived. `events` are the lines of the gateway's log."""
    sent = [one for one in recorded if _is_generating(one)]
    bodies = {one.body for one in arrived}
    unchanged = [one for one in sent if one.status == 200 and not one.outcome]
    cuts = [event for event in events if event["event"] == "cut"]
    growth = _Growth([event["at"] for event in cuts])
    written = {one.body for one in sent}
    refused = [one for one in arrived if one.violations]
    refused_directly = [one for one in refused if one.body in written]
    for arrival in arrived:
        if arrival not in refused_directly:
            growth.add(arrival)
    answered = [one for one in sent if one.status == 200]
    valid = 0
    hidden = 0
    for one in answered:
        request, dialect = _read_request(one)
        valid += not dialect.wire.check(request)
        hidden += "call_recall_" not in one.body.decode() and not set(OWN_TOOLS) & set(list_tools(request))
    return SessionMeasures(
        requests=len(sent),
        identical=Share(sum(one.body in bodies for one in unchanged), len(unchanged)),
        cuts=len(cuts),
        refused=len(refused) - len(refused_directly),
        refused_directly=len(refused_directly),
        kept=Share(growth.kept, growth.pairs),
        told_apart=_compare_conversations(sent, events),
        recalls=Share(growth.recalled, growth.recalls),
        kept_after_recall=Share(growth.kept_after_recall, growth.after_recall),
        valid_directly=Share(valid, len(answered)),
        hidden=Share(hidden, len(answered)),
    )


def _is_generating(one: Recorded) -> bool:
    if one.method != "POST":
        return False
    return match_route("POST", one.path.partition("?")[0]).action == "generate"


class _Growth:
    """Follows the requests of each conversation as they arrive, and sees which continue the one before.

    `cuts` are the times of the cuts: a request after a cut need not continue the one before it.
    """

    def __init__(self, cuts: Sequence[float]) -> None:
        self._cuts = cuts
        self.pairs = 0
        self.kept = 0
        self.recalls = 0
        self.recalled = 0
        self.after_recall = 0
        self.kept_after_recall = 0
        self._last: dict[str, _Sent] = {}
        self._sent: dict[str, set[tuple[bytes, ...]]] = {}

    def add(self, one: Arrived) -> None:
        if one.label == "other":
            return
        current = _Sent.of(one)
        last = self._last.get(one.label)
        self._last[one.label] = current
        sent_before = self._sent.setdefault(one.label, set())
        is_repeated = current.digests.chain in sent_before
        sent_before.add(current.digests.chain)
        if last is None or is_repeated:  # the client asked again, because the gateway had died
            return
        if last.recalls:
            self.recalls += 1
            self.recalled += current.has_recall
        if any(last.at < at <= current.at for at in self._cuts):
            return
        continues = current.continues(last)
        self.pairs += 1
        self.kept += continues
        if last.has_recall and not last.recalls:
            self.after_recall += 1
            self.kept_after_recall += continues


class _Sent(NamedTuple):
    """A request, as far as its cache is concerned. `has_recall`: it ends with a recall and its text."""

    digests: RequestDigests
    tools: str
    recalls: bool
    has_recall: bool
    at: float

    @staticmethod
    def of(one: Arrived) -> _Sent:
        request = one.request
        if one.dialect == "gemini":
            request = {"model": "gemini-2.5-pro", **request}
        digests = digest_log(DIALECTS[one.dialect].wire.parse(request).log, NO_DIGESTS)
        tools = json.dumps(request.get("tools"))
        ending = json.dumps([str(segment.parts) for segment in digests.segments[-3:]])
        has_recall = any(f"'{name}'" in ending for name in OWN_TOOLS)
        return _Sent(digests, tools, one.recalls, has_recall, one.at)

    def continues(self, last: _Sent) -> bool:
        chain = drop_reminders(last.digests)
        return count_shared_links(self.digests.chain, chain) == len(chain) and self.tools == last.tools


def drop_reminders(digests: RequestDigests) -> tuple[bytes, ...]:
    """The chain of a request without system messages at its end: a client may move them on."""
    end = len(digests.chain)
    while end and digests.segments[end - 1].role is Role.SYSTEM:
        end -= 1
    return digests.chain[:end]


def _compare_conversations(sent: Sequence[Recorded], events: Sequence[dict[str, Any]]) -> Share:
    """Whether the gateway saw as many conversations as the client had, forks with what they came from."""
    requests: list[RequestDigests] = []
    for one in sent:
        if one.status == 200:
            request, dialect = _read_request(one)
            requests.append(digest_log(dialect.wire.parse(request).log, NO_DIGESTS))
    answers = [event for event in events if event["event"] in ("answered", "answered without usage")]
    forks: dict[str, str] = {}
    for event in answers:
        name = event["conversation"]
        forks.setdefault(name, forks.get(event.get("parent", ""), name))
    names = set(forks.values())
    conversations = count_conversations(requests)
    return Share(min(len(names), conversations), max(len(names), conversations))


def count_conversations(requests: Sequence[RequestDigests]) -> int:
    """How many conversations a client had.

    A request belongs to an earlier one if it has all of its messages, or if both have an answer in common: a
    client that changes something in its middle makes a fork. Before the first answer the system text must be
    the same, too. A title may be asked for in the words of the conversation itself.
    """
    conversations: list[list[RequestDigests]] = []
    for request in requests:
        for conversation in conversations:
            if any(_belongs(request, earlier) for earlier in conversation):
                conversation.append(request)
                break
        else:
            conversations.append([request])
    return len(conversations)


def _belongs(request: RequestDigests, earlier: RequestDigests) -> bool:
    chain = drop_reminders(earlier)
    shared = count_shared_links(request.chain, chain)
    if shared > request.first_answer:
        return True
    return shared == len(chain) and request.system == earlier.system


def _read_request(one: Recorded) -> tuple[dict[str, Any], Dialect]:
    route = match_route("POST", one.path.partition("?")[0])
    request = json.loads(one.body)
    if route.model:
        request = {"model": route.model, **request}
    return request, DIALECTS[route.dialect]
