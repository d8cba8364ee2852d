"""Defines a dialect: functions over one provider's wire format, in groups, and the values that they exchange.

    Wire ──▶ messages: parse, render, check      HeadShape ──▶ tools and parameters, in plain words and back
    CacheView ──▶ what a prefix cache compares   Answers ──▶ responses and streams
    ServerHelp ──▶ what the server does with the history by itself

A dialect keeps bytes. Parsing notes on each segment where it came from (`origins`), so that rendering can
send the very same object for a message that was not lowered. A dialect decides nothing: what is lowered, and
why, is for the core to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from lamina.caches.rules import MatchRule
from lamina.caches.stream import Stream
from lamina.core.bound_thinking import Binding
from lamina.core.envelope import Envelope
from lamina.core.repair import Repairs
from lamina.core.values import Entry, Ref, RequestHead, Segment
from lamina.dialects.memos import CheckMemo, ParseMemo, StreamMemo
from lamina.dialects.render_memo import RenderMemo
from lamina.dialects.usage import Usage

Request = Mapping[str, Any]
"""A request as its API takes it: the JSON object of the body."""


class ParsedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a log and a head."""

    log: tuple[Segment, ...]
    head: RequestHead


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

    head: RequestHead
    left: tuple[str, ...] = ()


class Marking(msgspec.Struct, frozen=True, kw_only=True):
    """Cache markers to place: the lifetime for each block's `place`, "" for the provider's default.

    `automatic` and `key` are set on the request as a whole, if the dialect has a field for them. Without a
    key the caller's own stays. `is_bare`: the messages of the request have no markers yet.
    """

    places: Mapping[str, str] = {}
    automatic: str = ""
    key: str = ""
    is_bare: bool = False


class Parse(Protocol):
    """Makes a log and a head of a request. With a memo, a growing request is read only at its end."""

    def __call__(self, request: Request, /, *, memo: ParseMemo | None = None) -> ParsedRequest: ...


class Render(Protocol):
    """Makes a request of an envelope. With a memo, only the end of a request that grows is written."""

    def __call__(self, envelope: Envelope, memo: RenderMemo | None = None, /) -> dict[str, Any]: ...


class Check(Protocol):
    """Lists the rules of the API that a request breaks. With a memo, only its end is read if it grows."""

    def __call__(self, request: Request, /, *, memo: CheckMemo | None = None) -> list[Violation]: ...


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversation is written in one wire format.

    - `parse` makes a log and a head of a request, `render` makes a request of an envelope. Together they
      mend whatever `check` would refuse, if that is possible without inventing what somebody says. These
      mends depend on nothing that comes later, with two exceptions, `lasting` and `order`.
    - `check` lists the rules that a request breaks. Whoever gives a memo has parsed or rendered the request
      here. So it can be read, and of one that grows from call to call only the end is checked.
    - `repairs` says what the core has to repair in a log before it is rendered.
    - `carries` says why a segment cannot be sent here, "" if it can.
    - `opening` is what `render` says in place of the user's first message, if the API wants one and the
      assistant begins.
    - `lasting` names the mends of this request that every later one must make too, as lines for
      `ledger.repairs`. None if rendering mends nothing for good. For entries before the position that it is
      given, the ledger has such lines already.
    - `order` gives the positions of entries in the order in which they are sent. None if no rule moves them.
    - `takes_late_system` says whether the model takes system text in the middle of a conversation, with its
      authority. None if the API has system text in its head only, or if the templates of its models may
      refuse it later.
    """

    parse: Parse
    render: Render
    check: Check
    carries: Callable[[Segment], str]
    repairs: Repairs = Repairs()
    opening: str = ""
    lasting: Callable[[Envelope, int], Mapping[Ref, str]] | None = None
    order: Callable[[Sequence[Entry], RequestHead], list[int]] | None = None
    takes_late_system: Callable[[Request], bool] | None = None


class HeadShape(msgspec.Struct, frozen=True, kw_only=True):
    """How everything that is not a message is written.

    - `read` says what a head means in plain words, `write` says a plain head in the words of this API.
    - `takes_tool` says whether a function of lamina's own can be added to a head, and its calls be answered
      before the client sees the answer. None if it always can.
    - `add_tools` puts written tools after the others. None if they are just the last ones of the list.
    """

    read: Callable[[RequestHead], PlainHead]
    write: Callable[[PlainHead], OwnHead]
    takes_tool: Callable[[RequestHead], bool] | None = None
    add_tools: Callable[[RequestHead, Sequence[dict[str, Any]]], tuple[Any, ...]] | None = None


class GrowingStream(Protocol):
    """Reads a request as blocks. Messages that the memo knows are not read again."""

    def __call__(self, request: Request, /, *, memo: StreamMemo | None = None) -> Stream: ...


class Markers(msgspec.Struct, frozen=True, kw_only=True):
    """Cache markers of one API.

    - `cache` is the sort of cache whose markers it takes. The rules of a cache belong to the model, which may
      be served behind another provider's wire format.
    - `put` puts exactly these markers on a request, and takes off all others.
    - `find` gives the markers of a request, or their number.
    - `stream` is the stream of a request that grows. None if such a request is read anew each time.
    """

    cache: MatchRule
    put: Callable[[Request, Marking], dict[str, Any]]
    find: Callable[[Request], Any] | None = None
    stream: GrowingStream | None = None


class CacheView(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider's prefix cache sees of a request.

    - `stream` is the request as blocks, in the order in which the cache compares them.
    - `markers` says how to place cache markers. None if the API has none.
    - `steady` is False if the layout itself moves bytes at each new question.
    """

    stream: Callable[[Request], Stream]
    markers: Markers | None = None
    steady: bool = True


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """How the answers of one API are read and written.

    - `absorb` reads a whole response, `absorb_stream` all events of a stream in order.
    - `write` returns a whole answer that says one text of lamina's own and nothing else.
      `write_closing_events` returns the events that end a stream with such a text before them or in them; its
      block or item has the number that is passed. Both are None for an API without tools: its answers are
      never empty because a call was taken out.
    """

    absorb: Callable[[Any], Absorbed]
    absorb_stream: Callable[[Sequence[Any]], Absorbed]
    write: Callable[[Mapping[str, Any], str], dict[str, Any]] | None = None
    write_closing_events: Callable[[Sequence[Mapping[str, Any]], str, int], list[dict[str, Any]]] | None = (
        None
    )


class ServerHelp(msgspec.Struct, frozen=True, kw_only=True):
    """What a server does with the history by itself, if it is asked to.

    - `binding` says what a changed past does to thinking in a request.
    - `ask_to_drop_thinking` asks the server to drop thinking that no longer fits; such a request needs the
      `dropping_headers`.
    - `asks_to_clear` says whether the caller asked the server to leave out old content.
    """

    binding: Callable[[Request], Binding]
    ask_to_drop_thinking: Callable[[Request], Request]
    dropping_headers: Mapping[str, str]
    asks_to_clear: Callable[[Request], bool]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One wire format. A capability that an API does not have is None.

    - `recognises` says whether a request looks like this dialect's.
    - `wire` writes messages, `head` everything else, `answers` what the model says.
    - `cache` is the request as a prefix cache sees it.
    - `server` is what the server does with the history if it is asked to.
    - `defer_tools` returns a request with every tool deferred that is not named, or the same object if the
      client does so itself. None if the API does not search for tools.
    """

    name: str
    recognises: Callable[[Request], bool]
    wire: Wire
    head: HeadShape
    cache: CacheView
    answers: Answers
    server: ServerHelp | None = None
    defer_tools: Callable[[Request, Sequence[str]], Request] | None = None
