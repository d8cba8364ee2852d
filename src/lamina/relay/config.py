"""The settings of a gateway: one typed TOML file. A wrong setting is refused at the start, with its line.

    port = 4949

    [policy]
    keep = "lowered"

    [upstreams.claude]
    url = "https://api.anthropic.com"
    profile = "anthropic"
    prefix = "/claude"
    policy.budget = 64000

A `policy` has the fields of `lamina.Policy` that are plain data. Without a file there is one upstream for
each public API, chosen by the route. The file holds no secrets: an upstream names the environment variable
that has its key, and an access token is listed by its SHA-256.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from lamina.core.text.characters import lower_ascii, split_words
from lamina.errors import BadInput
from lamina.fitting.policy import DEFAULT_POLICY, Policy, hint_at_policy
from lamina.settings import decode_toml, find_error_line, find_line

TOKEN_VARIABLE = "LAMINA_GATEWAY_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with an access token for the workspace `default`."""

SHORTEST_TOKEN = 16
"""Characters of an access token where other machines can try some."""

_HOW_TO_MAKE_ONE = (
    'make one with `openssl rand -hex 24`, and list what `printf %s "$TOKEN" | sha256sum` prints'
)

_GUESSED_TOKENS = """
    … ... 0000 1234 12345 123456 12345678 123456789 abc abc123 access access-token admin api api-key apikey
    bearer change-me change_me changeme default demo dev example foo gateway guest hello key lamina letmein me
    my-token mytoken none null pass passwd password public qwerty root sample secret sk-test team test testing
    token user xxx xxxx your-token your_token
    Admin Changeme Password Secret Test Token
"""
_GUESSED_ENDS = ("", "1", "12", "123", "1234", "!")

DEFAULT_PORT = 4949
MEBIBYTE = 1 << 20

_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~/-]*[A-Za-z0-9._~-])?")
"""How the prefix of an upstream is written: `/claude`, or nothing."""

_NEVER_IN_HOSTS = frozenset("/?#@\\ \t,")
"""Signs in a Host header that two parsers may read differently, so that they see two hosts in it."""

ProfileName = Literal["anthropic", "openai", "gemini", "openrouter", "bedrock", "llama.cpp", "vllm", "ollama"]
Positive = Annotated[int, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the settings file."""


OWN_SERVERS = frozenset(("llama.cpp", "vllm", "ollama"))
"""Profiles of servers that people run themselves."""


class UpstreamSettings(_Table, frozen=True, kw_only=True):
    """One server that requests are sent to.

    A request goes to the upstream whose `prefix` its path begins with, else to the one whose `models` has a
    pattern for its model, else to the first one that speaks its API. `key_env` names the
    variable with the key that is sent instead of the client's. `policy` says how its requests are fitted;
    what it leaves open, the policy of the gateway says.
    """

    url: str
    profile: ProfileName
    prefix: str = ""
    models: tuple[str, ...] = ()
    key_env: str = ""
    policy: Policy = DEFAULT_POLICY


class AccessToken(_Table, frozen=True, kw_only=True):
    """A token that opens one workspace, by its SHA-256 in hex."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    workspace: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "default"


class GatewaySettings(_Table, frozen=True, kw_only=True):
    """Everything that a gateway can be told.

    `hosts` are allowed besides the loopback names. `journal` is the file with a line for each
    request; by default it lies beside the store, and "off" is none. `inspect` says whether the gateway shows
    the inspector's pages. `policy` holds for all upstreams that say nothing else; what it keeps, it keeps for
    all. Conversations that were not used for `keep_days`, and the oldest ones beyond `keep_bytes`, are
    deleted; without these limits nothing is. `body_bytes` is how large a request may be. An upstream may take
    `first_byte_seconds` to begin an answer. One that is overloaded or drops the connection before that is
    asked once more, if it can be within `retry_seconds`. Requests that run may take `drain_seconds` to end
    after SIGTERM. All other limits are fixed (`lamina.relay.limits`).
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = DEFAULT_PORT
    workers: Positive = 1
    store: str = ""
    key_file: str = ""
    keep_days: Positive | None = None
    keep_bytes: Positive | None = None
    body_bytes: Positive = 32 * MEBIBYTE
    first_byte_seconds: Seconds = 600.0
    retry_seconds: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    drain_seconds: Seconds = 30.0
    journal: str = ""
    inspect: bool = True
    telemetry: Literal["off", "otlp"] = "off"
    hosts: tuple[str, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    policy: Policy = DEFAULT_POLICY
    upstreams: dict[str, UpstreamSettings] = {}

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach the address."""
        return not is_loopback(self.host)

    def list_upstreams(self) -> dict[str, UpstreamSettings]:
        """The upstreams by their names, each with the policy that holds for it.

        A server of one's own reads for free, whatever the price of its model elsewhere.
        """
        upstreams: dict[str, UpstreamSettings] = {}
        for name, upstream in self.upstreams.items():
            policy = upstream.policy.over(self.policy)
            if upstream.profile in OWN_SERVERS:
                policy = msgspec.structs.replace(policy, window="model")
            upstreams[name] = msgspec.structs.replace(upstream, policy=policy)
        return upstreams

    @property
    def shares_store(self) -> bool:
        """Whether other processes write to the store: workers, or gateways on other machines."""
        return self.workers > 1 or self.store.startswith(("postgres:", "postgresql:"))


DEFAULT_UPSTREAMS = {
    "anthropic": UpstreamSettings(url="https://api.anthropic.com", profile="anthropic"),
    "openai": UpstreamSettings(url="https://api.openai.com", profile="openai"),
    "gemini": UpstreamSettings(url="https://generativelanguage.googleapis.com", profile="gemini"),
    "ollama": UpstreamSettings(url="http://127.0.0.1:11434", profile="ollama"),
}
"""The upstreams of a gateway that has no settings file."""


def load_gateway_settings(path: Path | None, environment: Mapping[str, str]) -> GatewaySettings:
    """The settings of a file, or the defaults without one. A wrong setting raises BadInput with its line."""
    settings = GatewaySettings()
    if path is not None:
        settings = _read_settings(path)
    if not settings.upstreams:
        settings = msgspec.structs.replace(settings, upstreams=DEFAULT_UPSTREAMS)
    token = environment.get(TOKEN_VARIABLE, "")
    if token:
        access = AccessToken(sha256=sha256(token.encode()).hexdigest())
        settings = msgspec.structs.replace(settings, tokens=(*settings.tokens, access))
    return settings


def check_settings(
    settings: GatewaySettings, environment: Mapping[str, str], path: Path | None = None
) -> None:
    """Refuse settings that are well-formed and still cannot work, or would not be safe.

    `path` is the file that they came from: the error names the line, if the wrong setting is in it.
    """
    try:
        _check_settings(settings, environment)
    except BadInput as error:
        line = 0
        if path is not None:
            line = find_line(_read_text(path), error.place)
        if not line:
            raise
        place = f"{path}:{line} ({error.place})"
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _check_settings(settings: GatewaySettings, environment: Mapping[str, str]) -> None:
    if settings.is_public and not settings.tokens:
        raise BadInput(
            f"{settings.host} can be reached from other machines, and no access token is set",
            place="host",
            hint=f"set {TOKEN_VARIABLE}, list [[tokens]] in the settings, or listen on 127.0.0.1",
        )
    if settings.is_public:
        _check_tokens(settings.tokens, environment)
    for host in settings.hosts:
        _check_host(host)
    for name, upstream in settings.upstreams.items():
        _check_upstream(upstream, f"upstreams.{name}", environment)
        if upstream.policy.keep not in (DEFAULT_POLICY.keep, settings.policy.keep):
            place = f"upstreams.{name}.policy.keep"
            hint = "set it under [policy]: a gateway keeps the same for all its upstreams"
            raise BadInput("an upstream keeps nothing of its own", place=place, hint=hint)


def _check_tokens(tokens: Iterable[AccessToken], environment: Mapping[str, str]) -> None:
    """Refuse tokens that a stranger would try first."""
    if 0 < len(environment.get(TOKEN_VARIABLE, "")) < SHORTEST_TOKEN:
        problem = f"the access token has fewer than {SHORTEST_TOKEN} characters"
        raise BadInput(problem, place=TOKEN_VARIABLE, hint=_HOW_TO_MAKE_ONE)
    guessed = _digest_guessed_tokens()
    for access in tokens:
        if access.sha256 in guessed:
            problem = f"the access token of {access.workspace!r} is a word that anybody can guess"
            raise BadInput(problem, place="tokens", hint=_HOW_TO_MAKE_ONE)


@cache
def _digest_guessed_tokens() -> frozenset[str]:
    """The digests of words that people take for a token, and of no token at all."""
    digests = {sha256(b"").hexdigest()}
    for word in split_words(_GUESSED_TOKENS):
        digests.update(sha256(f"{word}{end}".encode()).hexdigest() for end in _GUESSED_ENDS)
    return frozenset(digests)


def _check_upstream(upstream: UpstreamSettings, place: str, environment: Mapping[str, str]) -> None:
    if "@" in upstream.url:  # not quoted: it may have a password
        hint = "name the environment variable with the key as `key_env`"
        raise BadInput("the address has a user name or a password", place=f"{place}.url", hint=hint)
    if not _names_server(upstream.url):
        hint = "write it like https://api.anthropic.com"
        raise BadInput(f"{upstream.url!r} is not the address of a server", place=f"{place}.url", hint=hint)
    if not _PREFIX.fullmatch(upstream.prefix):
        hint = 'write it like "/claude": a slash first, none at the end'
        raise BadInput(f"{upstream.prefix!r} is not a prefix", place=f"{place}.prefix", hint=hint)
    if upstream.key_env and not environment.get(upstream.key_env):
        hint = "export it before you start the gateway"
        raise BadInput(f"${upstream.key_env} is not set", place=f"{place}.key_env", hint=hint)


def _names_server(url: str) -> bool:
    """Whether requests can be sent to an address: its path stands in each of them, before their own."""
    try:
        parts = urlsplit(url)
        has_host = bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:  # a port above 65,535, a name with two dots in a row
        return False
    if not has_host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        return False
    return all("!" <= character <= "~" for character in parts.path)


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine only."""
    if host == "localhost":
        return True
    return is_address(host) and ip_address(host).is_loopback


def is_address(text: str) -> bool:
    """Whether a text is an address of version 4 or 6, as in `::1`."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def read_host_name(host: str) -> str:
    """The name in a Host header, without its port; "" if it is malformed, as in `evil.example/?#`."""
    if not _NEVER_IN_HOSTS.isdisjoint(host):
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _check_host(host: str) -> None:
    """Refuse a host that no Host header can match: names are compared without their ports."""
    # A name with a port was once accepted, and never matched.
    name = read_host_name(host.rpartition("://")[2].rstrip("/"))
    if host and (name == lower_ascii(host) or is_address(host)):
        return
    expected = name or "gateway.example"
    hint = f'write the name alone, without a port: "{expected}"'
    raise BadInput(f"{host!r} is not the name of a host", place="hosts", hint=hint)


def _read_settings(path: Path) -> GatewaySettings:
    text = _read_text(path)
    values = decode_toml(text, path)
    tables = values.pop("upstreams", {})
    settings: GatewaySettings = _convert(values, GatewaySettings, path=path, text=text, section="")
    upstreams: dict[str, UpstreamSettings] = {}
    if not isinstance(tables, dict):
        tables = {"": tables}
    for name, table in tables.items():
        section = f"upstreams.{name}"
        upstreams[name] = _convert(table, UpstreamSettings, path=path, text=text, section=section)
    return msgspec.structs.replace(settings, upstreams=upstreams)


def _read_text(path: Path) -> str:
    place = str(path)
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise BadInput("there is no such file", place=place, hint="check the path") from None
    except IsADirectoryError:
        raise BadInput("it is a folder", place=place, hint="name a file in it") from None
    except UnicodeDecodeError:
        raise BadInput("it is not UTF-8 text", place=place, hint="give settings as TOML") from None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=place, hint="check the path") from None


def _convert(values: Any, kind: type[Any], *, path: Path, text: str, section: str) -> Any:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        line = find_error_line(text, message, table=section) or 1
        fields = ", ".join(kind.__struct_fields__)
        hint = f"the settings here are {fields}"
        if message.endswith(".sha256`"):
            hint = _HOW_TO_MAKE_ONE
        if "`$.policy" in message:
            hint = hint_at_policy(message)
        raise BadInput(message, place=f"{path}:{line}", hint=hint) from None
