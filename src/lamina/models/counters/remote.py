"""Counting by asking: the providers' counting endpoints and local servers, each text asked for once.

    asked = remote.anthropic(client, model="claude-opus-5")
    fit_request(request, counter=asked.counter)       # text by text: one call for each new text
    asked.request(request)                            # a whole request in one call

Takes the official client as it is and imports none; a server without one is asked over HTTP. Where an
answer fails, `otherwise` counts and `asked.failures` says so; without `otherwise`, CountFailed is raised.
It counts what the endpoint counts, and never decides what is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from lamina.core.hashing import canonical
from lamina.core.text.characters import is_blank
from lamina.core.tokens import Counter
from lamina.errors import BadInput, CountFailed
from lamina.models.counters.cached import CachedCounter
from lamina.models.counters.guarded import without_surrogates
from lamina.models.framing import framing_for

PATIENCE = 30.0
"""Seconds for one answer of a server that is asked over HTTP."""

MOST = 4_096
"""Whole requests whose counts are kept."""

Json = Mapping[str, Any]
Ask = Callable[[Json], int]
Post = Callable[[str, bytes], bytes]


class Remote:
    """One endpoint: `counter` counts text, `request` a whole request. `failures` counts failed answers."""

    def __init__(
        self,
        name: str,
        *,
        text: Callable[[str], int],
        whole: Ask,
        otherwise: Counter | None,
        model: str,
        official: bool = True,
    ) -> None:
        self.name = name
        self.failures = 0
        self.last_failure = ""
        self._text, self._otherwise = CachedCounter(text), otherwise
        self._requests = CachedCounter(lambda body: whole(msgspec.json.decode(body)), most=MOST)
        self.counter = Counter(
            name=name if otherwise is None else f"{name}, else {otherwise.name}",
            count=self._count,
            exact=official and otherwise is None,
            measured=not official and otherwise is None,
            framing=framing_for(model),
        )

    def request(self, request: Json) -> int:
        """The tokens of a whole request, as the endpoint counts them."""
        canonical(request)  # refuses what is not JSON; what is asked keeps its order
        try:
            return self._requests(msgspec.json.encode(request).decode())
        except BadInput:
            raise
        except Exception as error:
            self._note(error)
            raise CountFailed(self.name, error) from error

    def _count(self, text: str) -> int:
        try:
            return self._text(without_surrogates(text))
        except BadInput:
            raise
        except Exception as error:
            self._note(error)
            if self._otherwise is None:
                raise CountFailed(self.name, error) from error
            return self._otherwise.count(text)

    def _note(self, error: Exception) -> None:
        self.failures += 1
        self.last_failure = f"{error!r:.200}"


def anthropic(client: Any, *, model: str, otherwise: Counter | None = None) -> Remote:
    """`client.messages.count_tokens` of an `anthropic.Anthropic`, or of a server that speaks as it does.

    Anthropic calls its own answer an estimate, so it is never called exact.
    """

    def whole(request: Json) -> int:
        known = {key: value for key, value in request.items() if key in _ANTHROPIC}
        return _number(client.messages.count_tokens(**{"model": model, **known}), "input_tokens")

    def text(content: str) -> int:
        return whole({"messages": [{"role": "user", "content": content}]})

    return Remote(
        f"remote:{model}", text=_Framed(text), whole=whole, otherwise=otherwise, model=model, official=False
    )


def openai(client: Any, *, model: str, otherwise: Counter | None = None) -> Remote:
    """`client.responses.input_tokens.count` of an `openai.OpenAI`; whole requests are Responses."""

    def whole(request: Json) -> int:
        known = {key: value for key, value in request.items() if key in _RESPONSES}
        return _number(client.responses.input_tokens.count(**{"model": model, **known}), "input_tokens")

    def text(content: str) -> int:
        return whole({"input": content})

    return Remote(f"remote:{model}", text=_Framed(text), whole=whole, otherwise=otherwise, model=model)


def gemini(client: Any, *, model: str, otherwise: Counter | None = None) -> Remote:
    """`client.models.count_tokens` of a `google.genai.Client`; requests are what `generate_content` takes.

    Google's developer API counts contents only: instructions and tools are counted there as text.
    """

    def ask(contents: Any, config: Json) -> int:
        named = {"config": config} if config else {}
        return _number(client.models.count_tokens(model=model, contents=contents, **named), "total_tokens")

    def whole(request: Json) -> int:
        contents, config = request.get("contents") or [], _gemini_config(request)
        try:
            return ask(contents, config)
        except ValueError:  # what the SDK raises before it asks
            if not config:
                raise
        return ask(contents, {}) + sum(text(value) for value in map(_as_text, config.values()) if value)

    def text(content: str) -> int:
        return ask(content, {})

    return Remote(f"remote:{model}", text=_Framed(text), whole=whole, otherwise=otherwise, model=model)


def llama_cpp(
    base_url: str, *, model: str = "", otherwise: Counter | None = None, post: Post | None = None
) -> Remote:
    """A llama.cpp server: `/tokenize` for text, with its chat template for a whole chat request."""
    ask = _Server(base_url, post or _post)

    def text(content: str) -> int:
        return len(
            ask("/tokenize", {"content": content, "add_special": False, "parse_special": False})["tokens"]
        )

    def whole(request: Json) -> int:
        prompt = ask(
            "/apply-template", {key: request[key] for key in ("messages", "tools") if key in request}
        )
        body = {"content": prompt["prompt"], "add_special": True, "parse_special": True}
        return len(ask("/tokenize", body)["tokens"])

    return Remote(f"remote:{base_url}", text=text, whole=whole, otherwise=otherwise, model=model)


def vllm(base_url: str, *, model: str, otherwise: Counter | None = None, post: Post | None = None) -> Remote:
    """A vLLM server: its `/tokenize`, which reads special tokens in a text as such, as the model will."""
    ask = _Server(base_url, post or _post)

    def text(content: str) -> int:
        body = {"model": model, "prompt": content, "add_special_tokens": False}
        return int(ask("/tokenize", body)["count"])

    def whole(request: Json) -> int:
        known = {key: request[key] for key in ("messages", "tools") if key in request}
        return int(ask("/tokenize", {"model": model, "add_generation_prompt": True, **known})["count"])

    return Remote(f"remote:{base_url}", text=text, whole=whole, otherwise=otherwise, model=model)


class _Framed:
    """Text counted as a message of its own, less what the message costs: asked for once, with one letter.

    Text of nothing but white space is counted behind that letter, because some endpoints refuse it alone.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._frame: int | None = None

    def __call__(self, text: str) -> int:
        if self._frame is None:
            self._frame = self._count("a") - 1
        if text and is_blank(text):
            return max(0, self._count(f"a{text}") - self._frame - 1)
        return max(0, self._count(text) - self._frame)


class _Server:
    def __init__(self, base_url: str, post: Post) -> None:
        if urlsplit(base_url).scheme not in {"http", "https"}:
            raise BadInput(f"not an address: {base_url!r}", place="base_url", hint="use http://HOST:PORT")
        self._base_url, self._post = base_url.rstrip("/").removesuffix("/v1"), post

    def __call__(self, path: str, body: Json) -> dict[str, Any]:
        answer = msgspec.json.decode(self._post(f"{self._base_url}{path}", canonical(body)))
        if not isinstance(answer, dict):
            raise TypeError(f"{path} answered {answer!r:.80}")
        return answer


def _post(address: str, body: bytes) -> bytes:
    headers = {"Content-Type": "application/json", "Connection": "close"}
    request = Request(address, body, headers)  # noqa: S310 - http or https: _Server looked
    try:
        with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - as above
            return bytes(answer.read())
    except URLError as error:
        close = getattr(error, "close", None)  # an answer with an error status holds its connection
        if close:
            close()
        raise


def _number(answer: Any, field: str) -> int:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise BadInput(
            "the client is asynchronous",
            place="remote",
            hint="give the synchronous one: counting does not wait",
        )
    number = getattr(answer, field, None)
    if not isinstance(number, int):
        raise TypeError(f"the answer has no {field}: {answer!r:.80}")
    return number


def _gemini_config(request: Json) -> dict[str, Any]:
    """Instructions and tools, wherever the request has them: beside its contents, or in `config`."""
    found = {**request, **(request.get("config") or {})}
    return {name: found[key] for name, keys in _GEMINI.items() for key in keys if found.get(key)}


def _as_text(value: Any) -> str:
    match value:
        case str():
            return value
        case {"parts": [*parts]}:
            return "".join(part.get("text", "") for part in parts)
    return canonical(value).decode()


_ANTHROPIC = frozenset("messages model cache_control output_config system thinking tool_choice tools".split())
_RESPONSES = frozenset(
    "conversation input instructions model parallel_tool_calls previous_response_id reasoning text "
    "tool_choice tools truncation".split()
)
_GEMINI = {"system_instruction": ("system_instruction", "systemInstruction"), "tools": ("tools",)}
