"""What a dialect is: functions over one provider's wire format, and the values that they exchange.

A dialect keeps bytes. Parsing notes on each segment where it came from (`origins`), so that rendering can
send the very same object for a message that was not lowered. A dialect decides nothing: what is lowered, and
why, is for the core to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches.stream import Stream
from lamina.core.bound_thinking import Binding
from lamina.core.envelope import Envelope
from lamina.core.repair import Repairs
from lamina.core.values import Entry, Head, Ref, Segment
from lamina.dialects.memos import CheckMemo
from lamina.dialects.usage import Usage

Request = Mapping[str, Any]
"""A request as its API takes it: the JSON object of the body."""


class ParsedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a log and a head."""

    log: tuple[Segment, ...]
    head: Head


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a provider that a request breaks. `rule` is its name, `place` a path into the request."""

    rule: str
    place: str
    message: str


class Absorbed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as segments for the log, with the tokens that it took and why it stopped."""

    segments: tuple[Segment, ...]
    usage: Usage = Usage()
    stop: str = ""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call, as every provider has it. Its `schema` is JSON Schema."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}


class PlainHead(msgspec.Struct, frozen=True, kw_only=True):
    """A head in words that every dialect has, for a request that goes to another provider.

    `choice` is "auto", "none", "any", or "tool:" with a name. `answer` is the JSON Schema that the answer
    must have. `left` names the fields and tools that have no plain meaning.
    """

    model: str = ""
    tools: tuple[Tool, ...] = ()
    output: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    choice: str = ""
    answer: dict[str, Any] | None = None
    effort: str = ""
    stream: bool | None = None
    left: tuple[str, ...] = ()


class OwnHead(msgspec.Struct, frozen=True, kw_only=True):
    """A plain head in the words of one dialect. `left` names what this dialect cannot express."""

    head: Head
    left: tuple[str, ...] = ()


class Marking(msgspec.Struct, frozen=True, kw_only=True):
    """Cache markers to place: the lifetime for each block's `place`, "" for the provider's default.

    `automatic` and `key` are set on the request as a whole, if the dialect has a field for them. Without a
    key the caller's own stays.
    """

    places: Mapping[str, str] = {}
    automatic: str = ""
    key: str = ""


def _no_lasting_repairs(_: Envelope) -> Mapping[Ref, str]:
    """For a dialect that mends nothing for good."""
    return {}


def _binds_nothing(_: Request) -> Binding:
    """For an API whose thinking is not bound to what comes before it."""
    return "none"


def _never_asks(_: Request) -> bool:
    """For an API that cannot leave out content by itself."""
    return False


def _keep_request(request: Request) -> Request:
    """For an API that cannot drop thinking."""
    return request


def _loads_all_tools(request: Request, _: Sequence[str]) -> Request:
    """For an API that does not search for tools."""
    return request


def _asks_no_report(_: Request, __: str) -> dict[str, Any]:
    """For an API that says nothing about its cache."""
    return {}


def _takes_no_late_system(_: Request) -> bool:
    """For an API with system text in its head only, and for models whose templates may refuse it later."""
    return False


def _takes_any_tool(_: Head) -> bool:
    """For an API that takes a function beside all other tools, and gives one answer."""
    return True


def _keep_answer(answer: Mapping[str, Any], _: str) -> dict[str, Any]:
    """For an API without tools: its answers are never empty because a call was taken out."""
    return dict(answer)


def _keep_closing_events(closing: Sequence[Mapping[str, Any]], _: str, __: int) -> list[dict[str, Any]]:
    return [dict(event) for event in closing]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One wire format.

    - `recognises` says whether a request looks like this dialect's.
    - `parse` makes a log and a head of a request, `render` makes a request of an envelope. `render` mends
      whatever `check` would refuse, if that is possible without inventing what somebody says. Its mends
      depend on nothing that comes later, with two exceptions, `lasting` and `order`.
    - `lasting` names the mends of this request that every later one must make too, as lines for
      `ledger.repairs`.
    - `order` gives the positions of entries in the order in which they are sent, if a rule may move system
      messages.
    - `check` lists the rules that a request breaks. `recheck` is the same for requests that were parsed or
      rendered here and grow from call to call.
    - `absorb` reads a whole response, `absorb_stream` all events of a stream in order.
    - `write_answer` returns a whole answer that says one text of lamina's own and nothing else.
      `write_closing_events` returns the events that end a stream with such a text before them or in them; its
      block or item has the number that is passed.
    - `repairs` says what the core has to repair in a log for this dialect.
    - `binding` says what a changed past does to thinking in a request.
    - `asks_to_clear` says whether the caller asked the server to leave out old content by itself.
      `ask_to_drop_thinking` asks it to drop thinking that no longer fits, if the API can do that; such a
      request needs the `help_headers`.
    - `ask_to_clear` asks the server to leave out all tool results but the newest ones by itself; such a
      request needs the `clearing_headers`. None if the API cannot do that.
    - `ask_cache_report` returns the fields by which a request asks the API to compare it with the request of
      an earlier answer; empty if the API compares nothing (`lamina.dialects.cache_reports`).
    - `stream` is what a prefix cache sees of a request. `mark` puts exactly these cache markers on it, and
      takes off all others.
    - `carries` says why a segment of another dialect cannot be sent here, "" if it can.
    - `plain_head` and `own_head` translate everything that is not a message.
    - `takes_late_system` says whether the model takes system text in the middle of a conversation, with its
      authority.
    - `takes_tool` says whether a function of lamina's own can be added to a head, and its calls be answered
      before the client sees the answer.
    - `defer_tools` returns a request with every tool deferred that is not named, if the API searches for
      tools and the client does not do so itself; else the same object.
    - `steady` is False if the layout itself moves bytes at each new question.
    - `opening` is what `render` says in place of the user's first message, if the API wants one and the
      assistant begins.
    """

    name: str
    recognises: Callable[[Request], bool]
    parse: Callable[..., ParsedRequest]
    render: Callable[[Envelope], dict[str, Any]]
    check: Callable[..., list[Violation]]
    absorb: Callable[[Any], Absorbed]
    absorb_stream: Callable[[Sequence[Any]], Absorbed]
    repairs: Repairs
    stream: Callable[[Request], Stream]
    mark: Callable[[Request, Marking], dict[str, Any]]
    carries: Callable[[Segment], str]
    plain_head: Callable[[Head], PlainHead]
    own_head: Callable[[PlainHead], OwnHead]
    takes_late_system: Callable[[Request], bool] = _takes_no_late_system
    takes_tool: Callable[[Head], bool] = _takes_any_tool
    binding: Callable[[Request], Binding] = _binds_nothing
    write_answer: Callable[[Mapping[str, Any], str], dict[str, Any]] = _keep_answer
    write_closing_events: Callable[[Sequence[Mapping[str, Any]], str, int], list[dict[str, Any]]] = (
        _keep_closing_events
    )
    recheck: Callable[[Request, CheckMemo | None], list[Violation]] | None = None
    lasting: Callable[[Envelope], Mapping[Ref, str]] = _no_lasting_repairs
    asks_to_clear: Callable[[Request], bool] = _never_asks
    ask_to_drop_thinking: Callable[[Request], Request] = _keep_request
    help_headers: Mapping[str, str] = {}
    defer_tools: Callable[[Request, Sequence[str]], Request] = _loads_all_tools
    ask_to_clear: Callable[..., dict[str, Any]] | None = None
    clearing_headers: Mapping[str, str] = {}
    ask_cache_report: Callable[[Request, str], dict[str, Any]] = _asks_no_report
    order: Callable[[Sequence[Entry], Head], list[int]] | None = None
    steady: bool = True
    opening: str = ""
