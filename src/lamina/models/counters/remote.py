"""Counts by asking: the providers' counting endpoints and local servers, each text asked for once.

    endpoint = remote.anthropic(client, model="claude-opus-5")
    policy = Policy(counter=endpoint.counter)         # text by text: one call for each new text
    endpoint.request(request)                         # a whole request in one call

Takes the official client as it is and imports none; a server without one is asked over HTTP. If an answer
fails, `otherwise` counts and `endpoint.failures` says so; without `otherwise`, `CountFailed` is raised. It
counts what the endpoint counts, and never decides what is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from lamina.core.hashing import canonical_json
from lamina.core.text.characters import is_blank
from lamina.core.tokens import Counter
from lamina.errors import BadInput, CountFailed
from lamina.models.counters.count_cache import CachedCounter
from lamina.models.counters.count_guard import without_surrogates
from lamina.models.framing import framing_for

__all__ = ["Remote", "anthropic", "gemini", "llama_cpp", "openai", "vllm"]

PATIENCE = 30.0
"""Seconds for one answer of a server that is asked over HTTP."""

MOST = 4_096
"""Whole requests whose counts are remembered."""

Json = Mapping[str, Any]
RequestCount = Callable[[Json], int]
Post = Callable[[str, bytes], bytes]

# The fields of a request that each endpoint counts.
_ANTHROPIC_FIELDS = frozenset(
    "messages model cache_control output_config system thinking tool_choice tools".split()
)
_RESPONSES_FIELDS = frozenset(
    "conversation input instructions model parallel_tool_calls previous_response_id reasoning text "
    "tool_choice tools truncation".split()
)
_CHAT_FIELDS = frozenset(("messages", "tools"))
_GEMINI_FIELDS = {
    "system_instruction": ("system_instruction", "systemInstruction"),
    "tools": ("tools",),
}
"""The fields of Gemini's configuration, each with its spellings."""


class Remote:
    """One endpoint: `counter` counts text, `request` a whole request. `failures` counts failed answers."""

    def __init__(
        self,
        name: str,
        *,
        text: Callable[[str], int],
        whole: RequestCount,
        otherwise: Counter | None,
        model: str,
        official: bool = True,
    ) -> None:
        self.name = name
        self.failures = 0
        self.last_failure = ""
        self._otherwise = otherwise
        self._count_cached_text = CachedCounter(text)
        self._count_cached_request = CachedCounter(lambda body: whole(msgspec.json.decode(body)), most=MOST)
        counter_name = name
        if otherwise is not None:
            counter_name = f"{name}, else {otherwise.name}"
        self.counter = Counter(
            name=counter_name,
            count=self._count_text,
            exact=official and otherwise is None,
            measured=not official and otherwise is None,
            framing=framing_for(model),
        )

    def request(self, request: Json) -> int:
        """The tokens of a whole request, as the endpoint counts them."""
        canonical_json(request)  # raises if it is not JSON; the request itself is sent in its own order
        try:
            return self._count_cached_request(msgspec.json.encode(request).decode())
        except BadInput:
            raise
        except Exception as error:
            self._note_failure(error)
            raise CountFailed(self.name, error) from error

    def _count_text(self, text: str) -> int:
        """Count a text by the server; if that fails, by the counter `otherwise`, if there is one."""
        try:
            return self._count_cached_text(without_surrogates(text))
        except BadInput:
            raise
        except Exception as error:
            self._note_failure(error)
            if self._otherwise is None:
                raise CountFailed(self.name, error) from error
            return self._otherwise.count(text)

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        self.last_failure = f"{error!r:.200}"


def anthropic(client: Any, *, model: str, otherwise: Counter | None = None) -> Remote:
    """`client.messages.count_tokens` of an `anthropic.Anthropic`, or of a server that speaks as it does.

    Anthropic calls its own answer an estimate, so it is never called exact.
    """

    def count_request(request: Json) -> int:
        arguments = {"model": model, **_pick_fields(request, _ANTHROPIC_FIELDS)}
        return _read_number(client.messages.count_tokens(**arguments), "input_tokens")

    def count_text(text: str) -> int:
        return count_request({"messages": [{"role": "user", "content": text}]})

    return Remote(
        f"remote:{model}",
        text=_MessageText(count_text),
        whole=count_request,
        otherwise=otherwise,
        model=model,
        official=False,
    )


def openai(client: Any, *, model: str, otherwise: Counter | None = None) -> Remote:
    """`client.responses.input_tokens.count` of an `openai.OpenAI`; whole requests are Responses."""

    def count_request(request: Json) -> int:
        arguments = {"model": model, **_pick_fields(request, _RESPONSES_FIELDS)}
        return _read_number(client.responses.input_tokens.count(**arguments), "input_tokens")

    def count_text(text: str) -> int:
        return count_request({"input": text})

    return Remote(
        f"remote:{model}",
        text=_MessageText(count_text),
        whole=count_request,
        otherwise=otherwise,
        model=model,
    )


def gemini(client: Any, *, model: str, otherwise: Counter | None = None) -> Remote:
    """`client.models.count_tokens` of a `google.genai.Client`; requests are what `generate_content` takes.

    Google's developer API counts contents only: instructions and tools are counted there as text.
    """

    def count_contents(contents: Any, config: Json) -> int:
        arguments: dict[str, Any] = {"model": model, "contents": contents}
        if config:
            arguments["config"] = config
        return _read_number(client.models.count_tokens(**arguments), "total_tokens")

    def count_request(request: Json) -> int:
        contents = request.get("contents") or []
        config = _gemini_config(request)
        try:
            return count_contents(contents, config)
        except ValueError:  # what the SDK raises before it asks
            if not config:
                raise
        tokens = count_contents(contents, {})
        for value in config.values():
            text = _to_text(value)
            if text:
                tokens += count_text(text)
        return tokens

    def count_text(text: str) -> int:
        return count_contents(text, {})

    return Remote(
        f"remote:{model}",
        text=_MessageText(count_text),
        whole=count_request,
        otherwise=otherwise,
        model=model,
    )


def llama_cpp(
    base_url: str, *, model: str = "", otherwise: Counter | None = None, post: Post | None = None
) -> Remote:
    """A llama.cpp server: `/tokenize` for text, with its chat template for a whole chat request."""
    ask = _Server(base_url, post or _post_over_http)

    def count_text(text: str) -> int:
        body = {"content": text, "add_special": False, "parse_special": False}
        return len(ask("/tokenize", body)["tokens"])

    def count_request(request: Json) -> int:
        prompt = ask("/apply-template", _pick_fields(request, _CHAT_FIELDS))["prompt"]
        body = {"content": prompt, "add_special": True, "parse_special": True}
        return len(ask("/tokenize", body)["tokens"])

    return Remote(
        f"remote:{base_url}", text=count_text, whole=count_request, otherwise=otherwise, model=model
    )


def vllm(base_url: str, *, model: str, otherwise: Counter | None = None, post: Post | None = None) -> Remote:
    """A vLLM server: its `/tokenize`, which reads special tokens in a text as such, as the model will."""
    ask = _Server(base_url, post or _post_over_http)

    def count_text(text: str) -> int:
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        return int(ask("/tokenize", body)["count"])

    def count_request(request: Json) -> int:
        fields = _pick_fields(request, _CHAT_FIELDS)
        body = {"model": model, "add_generation_prompt": True, **fields}
        return int(ask("/tokenize", body)["count"])

    return Remote(
        f"remote:{base_url}", text=count_text, whole=count_request, otherwise=otherwise, model=model
    )


def _pick_fields(request: Json, names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name in names}


class _MessageText:
    """Counts text as a message of its own, less what the message costs, which is asked for with one letter.

    Text of nothing but white space is counted behind that letter, because some endpoints refuse it alone.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._frame: int | None = None

    def __call__(self, text: str) -> int:
        """The tokens of a text alone: those of a message with it, without the frame of a message.

        A message of white space is refused, so a letter goes before it.
        """
        if self._frame is None:
            self._frame = self._count("a") - 1
        if text and is_blank(text):
            return max(0, self._count(f"a{text}") - self._frame - 1)
        return max(0, self._count(text) - self._frame)


class _Server:
    """A server that is asked over HTTP, in JSON."""

    def __init__(self, base_url: str, post: Post) -> None:
        if urlsplit(base_url).scheme not in {"http", "https"}:
            raise BadInput(f"not an address: {base_url!r}", place="base_url", hint="use http://HOST:PORT")
        self._base_url = base_url.rstrip("/").removesuffix("/v1")
        self._post = post

    def __call__(self, path: str, body: Json) -> dict[str, Any]:
        """Send one request, and return the object that the server answers with."""
        answer = msgspec.json.decode(self._post(f"{self._base_url}{path}", canonical_json(body)))
        if not isinstance(answer, dict):
            raise TypeError(f"{path} answered {answer!r:.80}")
        return answer


def _post_over_http(address: str, body: bytes) -> bytes:
    """One POST request. The connection is closed, whatever the answer."""
    headers = {"Content-Type": "application/json", "Connection": "close"}
    request = Request(address, body, headers)  # noqa: S310 - http or https: _Server checks it
    try:
        with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - as above
            return bytes(answer.read())
    except URLError as error:
        close = getattr(error, "close", None)  # an answer with an error status holds its connection
        if close:
            close()
        raise


def _read_number(answer: Any, field: str) -> int:
    """A number in the answer of an SDK. An asynchronous client is refused with a hint."""
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
    """Instructions and tools, wherever the request has them: next to its contents, or in `config`."""
    fields = {**request, **(request.get("config") or {})}
    config: dict[str, Any] = {}
    for name, spellings in _GEMINI_FIELDS.items():
        for spelling in spellings:
            if fields.get(spelling):
                config[name] = fields[spelling]
    return config


def _to_text(value: Any) -> str:
    """What a field of a request says as text, in any shape that an API takes it in."""
    match value:
        case str():
            return value
        case {"parts": [*parts]}:
            return "".join(part.get("text", "") for part in parts)
    return canonical_json(value).decode()
