"""The security checklist of docs/gateway.md, a test for each line."""

from __future__ import annotations

import ast
import asyncio
import gzip
import json
import ssl
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard

import lamina.gateway
from lamina.errors import BadInput
from lamina.fitting import Policy
from lamina.gateway import GatewaySettings, load_gateway_settings
from lamina.gateway.packed_bodies import unpack
from lamina.relay import limits
from lamina.relay.config import AccessToken, UpstreamSettings, check_settings, is_loopback, read_host_name
from lamina.relay.refusals import Refusal
from lamina.relay.request_bodies import decode_body
from lamina.relay.security import Visitor, admit_visitor
from lamina.relay.turn_memory import TurnMemory
from tests.gateway.growing import HEADERS, chat_request, dump, messages_request
from tests.gateway.running import RunningGateway, open_client, proxied, read_files, run_gateway, settings_for
from tests.gateway.test_conversations import SMALL, post, states
from tests.gateway.upstream_stub import SeenRequest, run_stub

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]

TOKENS = (
    AccessToken(sha256=sha256(b"team-a-token").hexdigest(), workspace="a"),
    AccessToken(sha256=sha256(b"team-b-token").hexdigest(), workspace="b"),
)


async def raw(gateway: RunningGateway, data: bytes, *, wait: float = 5.0) -> bytes:
    """What the gateway answers to these bytes, while the client keeps its side open."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    async with asyncio.timeout(wait):
        answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return answer


# Who may ask


async def test_a_token_is_checked_before_the_body_is_read() -> None:
    async with run_stub() as stub, run_gateway(settings_for(stub, tokens=TOKENS)) as gateway:
        head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 30000000\r\n"
        for key in (b"", b"x-api-key: wrong\r\n", b"authorization: Bearer team-a-toke\r\n"):
            answer = await raw(gateway, head + key + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 401 ")
        assert stub.seen == []


async def test_every_wrong_token_gets_the_same_answer_and_every_key_header_counts() -> None:
    async with proxied(tokens=TOKENS) as (stub, gateway, client):
        wrong: list[dict[str, str]] = [
            {},
            {"x-api-key": ""},
            {"x-api-key": "no"},
            {"authorization": "Bearer no"},
        ]
        answers = [await post(client, gateway.url, messages_request(0), headers=headers) for headers in wrong]
        assert len(set(answers)) == 1
        assert answers[0][0] == 401
        for headers in (
            {"x-api-key": "team-a-token"},
            {"authorization": "Bearer team-b-token"},
            {"x-goog-api-key": "team-a-token"},
            {"x-lamina-token": "team-a-token", "x-api-key": "sk-of-the-client"},
        ):
            status, _ = await post(client, gateway.url, messages_request(0), headers=headers)
            assert status == 200
        sent = [seen.header_map for seen in stub.seen]
        assert "team-" not in json.dumps(sent)
        assert sent[-1]["x-api-key"] == "sk-of-the-client"
        both = {"x-api-key": "team-a-token", "authorization": "Bearer team-b-token"}
        assert (await post(client, gateway.url, messages_request(0), headers=both))[0] == 400
        async with client.get(f"{gateway.url}/metrics") as answer:
            assert answer.status == 401


def test_a_public_address_needs_a_token(tmp_path: Path) -> None:
    settings = settings_for("http://127.0.0.1:9", host="0.0.0.0")  # noqa: S104 - refused below
    with pytest.raises(BadInput, match="no access token"):
        check_settings(settings, {})
    with_token = settings_for("http://127.0.0.1:9", host="0.0.0.0", tokens=TOKENS)  # noqa: S104
    check_settings(with_token, {})
    check_settings(settings_for("http://127.0.0.1:9"), {})
    with pytest.raises(BadInput, match="16 characters"):
        check_settings(with_token, {"LAMINA_GATEWAY_TOKEN": "short"})
    from_environment = load_gateway_settings(None, {"LAMINA_GATEWAY_TOKEN": "long-and-random"})
    assert from_environment.tokens[0].sha256 == sha256(b"long-and-random").hexdigest()
    file = tmp_path / "gateway.toml"
    file.write_text('[[tokens]]\nsha256 = "not a digest"\n')
    with pytest.raises(BadInput, match="sha256"):
        load_gateway_settings(file, {})


@pytest.mark.parametrize("token", ["test", "Password", "changeme", "lamina", "\u2026", "token123"])
def test_a_token_that_anybody_guesses_opens_no_public_address(token: str) -> None:
    tokens = (AccessToken(sha256=sha256(token.encode()).hexdigest()),)
    with pytest.raises(BadInput, match="anybody can guess"):
        check_settings(settings_for("http://127.0.0.1:9", host="0.0.0.0", tokens=tokens), {})  # noqa: S104
    check_settings(settings_for("http://127.0.0.1:9", tokens=tokens), {})


def test_the_sample_of_the_documentation_opens_nothing(tmp_path: Path) -> None:
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    sample = page.split("```toml\n")[1].split("```")[0]
    file = tmp_path / "gateway.toml"
    file.write_text(sample)
    with pytest.raises(BadInput, match="sha256") as refused:
        load_gateway_settings(file, {})
    assert "sha256sum" in refused.value.hint


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"host: evil.example\r\n", 421),
        (b"host: x/?#\r\n", 421),
        (b"host: 127.0.0.1@evil.example\r\n", 421),
        (b"", 400),
        (b"host: localhost\r\norigin: https://evil.example\r\n", 403),
        (b"host: localhost\r\norigin: null\r\n", 403),
        (b"host: localhost\r\nsec-fetch-site: cross-site\r\n", 403),
        (b"host: localhost\r\nsec-fetch-site: same-site\r\n", 403),
        (b"host: [::1]:4949\r\n", 200),
        (b"host: gateway.example:4949\r\n", 200),
        (b"host: localhost:1\r\norigin: http://localhost:1\r\nsec-fetch-site: same-origin\r\n", 200),
    ],
)
async def test_other_host_names_and_other_sites_are_refused(headers: bytes, status: int) -> None:
    hosts = ("Gateway.example", "fd00::1")
    async with run_stub() as stub, run_gateway(settings_for(stub, hosts=hosts)) as gateway:
        answer = await raw(gateway, b"GET /v1/models HTTP/1.1\r\n" + headers + b"\r\n")
        assert int(answer[9:12]) == status
        assert b"access-control" not in answer.lower()
        assert len(stub.seen) == (status == 200)


async def test_workspaces_cannot_see_each_other(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    async with proxied(store, tokens=TOKENS, **SMALL) as (_, gateway, client):
        for token in ("team-a-token", "team-b-token"):
            for steps in (0, 20):
                headers = {"x-api-key": token, "x-lamina-conversation": "same"}
                await post(client, gateway.url, messages_request(steps), headers=headers)
    first, second = await states(store, "a"), await states(store, "b")
    assert [state.requests for state in (*first.values(), *second.values())] == [2, 2]
    assert first.keys().isdisjoint(second)  # names are salted by the workspace
    assert await states(store) == {}


async def test_the_caches_of_workspaces_are_salted_where_the_server_can() -> None:
    async with run_stub() as stub:
        upstreams = {"local": UpstreamSettings(url=stub.url, profile="vllm")}
        settings = GatewaySettings(port=0, policy=Policy(keep="nothing"), upstreams=upstreams, tokens=TOKENS)
        async with run_gateway(settings) as gateway, open_client() as client:
            for token in ("team-a-token", "team-b-token", "team-a-token"):
                headers = {"authorization": f"Bearer {token}"}
                await post(client, gateway.url, chat_request(1), "/v1/chat/completions", headers)
        asked = [seen for seen in stub.seen if seen.path.endswith("/chat/completions")]
        salts = [seen.json["cache_salt"] for seen in asked]
        assert salts[0] == salts[2] != salts[1]


def test_the_gateway_runs_no_code_of_others() -> None:
    """No eval, no templates, no processes, and no path that changes a setting.

    Only the supervisor of `lamina run` starts processes: gateways, and the client that the user named.
    """
    folder = Path(lamina.gateway.__file__).parent
    forbidden = {"eval", "exec", "compile", "subprocess", "jinja2", "pickle", "importlib", "os.system"}
    for path in folder.glob("*.py"):
        if path.name == "supervisor.py":
            continue
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert names.isdisjoint(forbidden), path.name


# Towards the upstream


async def test_the_client_never_chooses_the_server() -> None:
    async with proxied() as (stub, gateway, client):
        for name in ("api_base", "base_url", "api_key"):
            request = chat_request(1) | {name: "http://evil.example"}
            status, _ = await post(client, gateway.url, request, "/v1/chat/completions")
            assert status == 400
        answer = await raw(gateway, b"GET http://evil.example/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert not answer.startswith(b"HTTP/1.1 30")
        assert all("evil.example" not in seen.header_map["host"] for seen in stub.seen)


async def test_keys_come_from_the_environment_and_private_headers_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with run_stub() as stub, open_client() as client:
        settings = settings_for(stub, upstream={"key_env": "UPSTREAM_KEY"})
        check_settings(settings, {"UPSTREAM_KEY": "sk-real"})
        async with run_gateway(settings, {"UPSTREAM_KEY": "sk-real"}) as gateway:
            headers = {
                "x-api-key": "sk-client",
                "cookie": "secret=1",
                "proxy-authorization": "Basic x",
                "x-forwarded-for": "10.0.0.1",
                "forwarded": "for=10.0.0.1",
                "connection": "keep-alive, x-hop",
                "x-hop": "1",
                "anthropic-beta": "a,b",
            }
            await post(client, gateway.url, messages_request(1), headers=headers)
            sent = stub.seen[0].header_map
            assert sent["x-api-key"] == "sk-real"
            assert sent["anthropic-beta"] == "a,b"
            private = {"cookie", "proxy-authorization", "x-forwarded-for", "forwarded", "x-hop"}
            assert private.isdisjoint(sent)
    with pytest.raises(BadInput, match="UPSTREAM_KEY"):
        check_settings(settings, {})


async def test_redirects_are_not_followed_and_cookies_not_returned() -> None:
    async def redirect(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        headers = b"location: http://127.0.0.1:9/\r\nset-cookie: a=b\r\ncontent-length: 0\r\n"
        writer.write(b"HTTP/1.1 302 Found\r\n" + headers + b"\r\n")

    async with proxied() as (stub, gateway, client):
        stub.play(redirect)
        data = dump(messages_request(1))
        async with client.post(
            f"{gateway.url}/v1/messages", data=data, headers=HEADERS, allow_redirects=False
        ) as answer:
            assert answer.status == 302
            assert "set-cookie" not in answer.headers
        assert len(stub.seen) == 1


def make_certificate(folder: Path) -> ssl.SSLContext:
    from cryptography import x509  # noqa: PLC0415 - only here
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    (folder / "server.pem").write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    context = make_certificate(tmp_path)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with run_gateway(settings_for(f"https://127.0.0.1:{port}")) as gateway, open_client() as client:
        status, body = await post(client, gateway.url, messages_request(1))
        assert status == 502
        assert b"its certificate is not accepted (self" in body
    server.close()


# Limits

DEEP = b'{"messages":[' + b"[" * 100 + b"]" * 100 + b"]}"
DEEPER = b'{"messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}"


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"", "", 400),
        (b"not json", "", 400),
        (b"[1, 2]", "", 400),
        (b'{"messages": [}', "", 400),
        (b'{"messages": [NaN]}', "", 400),
        (b'{"a": 1, "messages": [], "messages": [1]}', "", 400),
        (b'{"messages": [{"role": "user", "role": "system", "content": "x"}]}', "", 400),
        (b'{"m\\u006fdel": "a", "model": "b"}', "", 400),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "", 400),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "", 400),
        (b'{"max_tokens": ' + b"9" * 5_000 + b"}", "", 400),
        (DEEP, "", 400),
        (DEEPER, "", 400),
        (json.dumps({"messages": [{}] * (limits.TURNS + 1)}).encode(), "", 413),
        (json.dumps({"tools": [{}] * (limits.TOOLS + 1)}).encode(), "", 413),
        (gzip.compress(b" " * (8 << 20), mtime=0), "gzip", 413),
        (zstandard.compress(b" " * (64 << 20)), "zstd", 413),
        (brotli.compress(b" " * (64 << 20), quality=1), "br", 413),
        (b"not gzip", "gzip", 400),
        (b"not zstd", "zstd", 400),
        (b"not brotli", "br", 400),
        (gzip.compress(b"{}", mtime=0)[:-9], "gzip", 400),
        (b"{}", "exi", 415),
        (b"{}", "identity, " * limits.TOOLS + "identity", 415),
    ],
)
def test_bodies_that_are_malformed_deep_huge_or_bombs(body: bytes, encoding: str, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        decode_body(unpack(body, encoding, 1 << 20), TurnMemory())
    assert caught.value.status == status
    assert len(caught.value.message) < 300


def test_half_a_character_is_named() -> None:
    """Decoders say that such a text ends too early, which nobody understands."""
    body = b'{"messages": [{"role": "user", "content": "cut here: \\ud83d"}]}'
    with pytest.raises(Refusal, match=r"\\ud83d is half of a character"):
        decode_body(body, TurnMemory())
    with pytest.raises(Refusal, match="truncated"):
        decode_body(b'{"messages": [{"content": "\\\\ud83d"', TurnMemory())


async def test_a_body_is_refused_by_its_length_before_it_is_sent() -> None:
    async with run_stub() as stub, run_gateway(settings_for(stub)) as gateway:
        head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n"
        answer = await raw(gateway, head + b"content-length: 99999999999\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
        answer = await raw(gateway, head + b"x-long: " + b"x" * 70_000 + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 431 ")
        trailers = b"0\r\n" + b"x-after: and more\r\n" * 5_000
        answer = await raw(gateway, head + b"transfer-encoding: chunked\r\n\r\n" + trailers)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert stub.seen == []


async def test_a_body_without_a_length_is_counted_while_it_comes() -> None:
    settings = settings_for("http://127.0.0.1:9", body_bytes=100_000)
    async with run_gateway(settings) as gateway:
        head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        answer = await raw(gateway, head + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 5)
        assert answer.startswith(b"HTTP/1.1 413 ")


async def test_the_body_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.3)
    settings = settings_for("http://127.0.0.1:9")
    async with run_gateway(settings) as gateway:
        answer = await raw(gateway, b"POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 421 ")  # the host is looked at first
        answer = await raw(
            gateway, b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"
        )
        assert answer.startswith(b"HTTP/1.1 408 ")


# Privacy


async def test_the_log_has_no_keys_and_no_content(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "gateway.db"
    canaries = ("sk-ant-oat01-canary", "team-a-token", "canary-in-a-message", "canary-in-a-header")
    async with proxied(store, tokens=TOKENS, **SMALL) as (_, gateway, client):
        headers = {
            "x-lamina-token": "team-a-token",
            "authorization": "Bearer sk-ant-oat01-canary",
            "x-other": "canary-in-a-header",
        }
        for steps in (0, 20, 21):
            request = messages_request(steps, task="canary-in-a-message")
            await post(client, gateway.url, request, headers=headers)
        broken: dict[str, Any] = {"model": "m", "messages": [{"role": "canary-in-a-message"}]}
        await post(client, gateway.url, broken, headers=headers)
        await post(client, gateway.url, broken, headers=headers | {"x-lamina-token": "canary-in-a-header"})
        assert gateway.events("cut")
        assert gateway.events("refused")
        log = gateway.log.getvalue()
    printed = capfd.readouterr()
    on_disk = read_files(tmp_path)
    for canary in canaries:
        assert canary not in log + printed.out + printed.err
    for secret in (*canaries[:2], canaries[3]):
        assert secret.encode() not in on_disk


async def test_a_path_cannot_begin_a_line_of_the_log() -> None:
    async with run_stub() as stub, run_gateway(settings_for(stub, tokens=TOKENS)) as gateway:
        await raw(gateway, b"GET /a%0A%7B%22event%22:%22cut%22%7D HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert gateway.events("cut") == []
        assert len(gateway.log.getvalue().splitlines()) == 1
        assert stub.seen == []


async def test_addresses_in_a_request_are_not_fetched() -> None:
    async with proxied() as (stub, gateway, client):
        request = messages_request(0)
        source = {"type": "url", "url": f"{stub.url}/secret.png"}
        request["messages"][0]["content"] = [{"type": "image", "source": source}]
        await post(client, gateway.url, request)
        assert [seen.path for seen in stub.seen] == ["/v1/messages"]


# Settings


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("port = 4949\nprot = 1\n", 2, "prot"),
        ('port = "x"\n', 1, "Expected `int`"),
        ("\nbody_bytes = 0\n", 2, ">= 1"),
        ("\n[limits]\nbody = 1\n", 2, "limits"),
        ('[upstreams.a]\nurl = "http://x"\nprofile = "nobody"\n', 3, "nobody"),
        (
            '[upstreams.a]\nurl = "http://x"\nprofile = "openai"\n\n[upstreams.b]\nprofile = "vllm"\n',
            5,
            "url",
        ),
        ("hosts = [\n", 0, "TOML"),
    ],
)
def test_a_wrong_setting_fails_with_its_line(text: str, line: int, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=problem) as caught:
        load_gateway_settings(file, {})
    if line:
        assert caught.value.place == f"{file}:{line}"


@pytest.mark.parametrize(
    ("upstream", "problem"),
    [
        ({"url": "api.anthropic.com", "profile": "anthropic"}, "address of a server"),
        ({"url": "file:///etc/passwd", "profile": "anthropic"}, "address of a server"),
        ({"url": "http://user:secret@x", "profile": "openai"}, "the address has a user name or a password"),
        ({"url": "http://x:99999", "profile": "openai"}, "not the address of a server"),
        ({"url": "http://a..b", "profile": "openai"}, "not the address of a server"),
        ({"url": "http://[::1", "profile": "openai"}, "not the address of a server"),
        ({"url": "http://x/a b", "profile": "openai"}, "not the address of a server"),
        ({"url": "http://x/\u00fc", "profile": "openai"}, "not the address of a server"),
        ({"url": "https://x", "profile": "anthropic", "prefix": "claude"}, "not a prefix"),
        ({"url": "https://x", "profile": "anthropic", "prefix": "/a/"}, "not a prefix"),
    ],
)
def test_an_upstream_that_cannot_be_right_is_refused(upstream: dict[str, Any], problem: str) -> None:
    settings = GatewaySettings(upstreams={"a": UpstreamSettings(**upstream)})
    with pytest.raises(BadInput, match=problem):
        check_settings(settings, {})


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gateway.example:4949", "gateway.example"),
        ("https://team.example/", "team.example"),
        ("[fd00::1]:4949", "fd00::1"),
        ("", "gateway.example"),
    ],
)
def test_a_host_with_a_port_is_refused_at_the_start(host: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'port = 4949\nhosts = ["Gateway.example", "fd00::1", "{host}"]\n')
    with pytest.raises(BadInput, match="not the name of a host") as caught:
        check_settings(load_gateway_settings(file, {}), {}, file)
    assert caught.value.place == f"{file}:2 (hosts)"
    assert f'"{name}"' in caught.value.hint


@pytest.mark.parametrize(
    ("address", "hosts", "asked", "is_served"),
    [
        ("0.0.0.0", (), "any.example", True),  # noqa: S104 - the token decides
        ("0.0.0.0", ("own.example",), "own.example", True),  # noqa: S104
        ("0.0.0.0", ("own.example",), "any.example", False),  # noqa: S104
        ("0.0.0.0", ("own.example",), "10.0.0.7:4949", True),  # noqa: S104 - how Prometheus and a balancer ask
        ("0.0.0.0", ("own.example",), "[fd00::7]:4949", True),  # noqa: S104
        ("0.0.0.0", ("own.example",), "10.0.0.7.evil.example", False),  # noqa: S104
        ("127.0.0.1", (), "any.example", False),
        ("127.0.0.1", ("own.example",), "own.example", True),
        ("127.0.0.1", ("own.example",), "10.0.0.7", False),
    ],
)
def test_which_names_are_served_depends_on_the_address(
    address: str, hosts: tuple[str, ...], asked: str, *, is_served: bool
) -> None:
    settings = GatewaySettings(host=address, hosts=hosts, tokens=TOKENS)
    headers = [(b"host", asked.encode()), (b"x-api-key", b"team-b-token")]
    if is_served:
        assert admit_visitor(headers, settings) == Visitor("b", key_is_token=True)
        return
    with pytest.raises(Refusal, match="not served here") as refused:
        admit_visitor(headers, settings)
    assert refused.value.status == 421


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("2001:db8::1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_an_address_of_this_machine_is_known(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gateway.example", "gateway.example"),
        ("Gateway.example:8080", "gateway.example"),
        ("[::1]:80", "::1"),
        ("evil.example/?#", ""),
        ("user@evil.example", ""),
        ("a.example, b.example", ""),
        ("[::1", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_host_is_read_without_its_port(host: str, name: str) -> None:
    assert read_host_name(host) == name
