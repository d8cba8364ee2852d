"""`lamina run`: a client through a gateway of its own, with its status, its signals and its account."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lamina.cli.doctor_checks import check_client
from lamina.cli.run import find_inspector, run_client
from lamina.cli.serve import apply_arguments, choose_run_window, describe_window
from lamina.errors import BadInput
from lamina.fitting import Policy
from lamina.gateway import GatewayAccount, GatewaySettings
from lamina.gateway.clients import (
    OWN_ADDRESSES,
    explain_bypass,
    find_client,
    point_client,
    read_direct_urls,
)
from lamina.gateway.supervisor import GatewayNotStarted, GatewaySupervisor
from lamina.relay.config import DEFAULT_UPSTREAMS
from tests.cli.running import run
from tests.gateway.growing import dump, messages_request
from tests.gateway.running import proxied, settings_for, until
from tests.gateway.test_conversations import post, twin_of
from tests.gateway.test_restart import once_each, post_until_answered
from tests.gateway.upstream_stub import SAID, Stub, answer_with, run_stub

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENT = str(Path(__file__).with_name("scripted_client.py"))
STEPS = 14
URL = "http://127.0.0.1:1"

SETTINGS = """
[upstreams.claude]
url = "{url}"
profile = "anthropic"
policy.budget.window = 8000
policy.budget.reserve = 500
policy.breakpoints = "keep"

[upstreams.openai]
url = "{url}"
profile = "openai"
"""


_BESIDES = ("what the model sees: ", "what it saved, as a picture, ", "requests ", "about ")
"""How lines begin that are not about what happened: where the inspector is, and when cuts are made."""


class Finished(NamedTuple):
    """How `lamina run` ended, and what its client reported."""

    code: int
    err: str
    report: Any

    @property
    def lines(self) -> list[str]:
        """What it said about what happened."""
        lines = [line.removeprefix("lamina: ") for line in self.err.rstrip("\n").split("\n")]
        return [line for line in lines if not line.startswith(_BESIDES)]


class Running:
    """`lamina run` with the scripted client as a process."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.report = folder / "report.json"
        self._options = options
        self._environment = os.environ | {"REPORT": str(self.report), "PYTHONPATH": _python_path()}
        self._environment |= environment
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *arguments: str, program: str = sys.executable) -> asyncio.subprocess.Process:
        command = [*self._options, "--", program, CLIENT, *arguments]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "lamina",
            "run",
            *command,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.report.parent,
        )
        return self._process

    async def finish(self, *arguments: str) -> Finished:
        process = self._process or await self.start(*arguments)
        _, err = await process.communicate()
        report = json.loads(self.report.read_text()) if self.report.exists() else None
        assert process.returncode is not None
        return Finished(process.returncode, err.decode(), report)


def _python_path() -> str:
    return os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])


def write_settings(folder: Path, stub: Stub) -> str:
    folder.mkdir(exist_ok=True)
    file = folder / "gateway.toml"
    file.write_text(SETTINGS.format(url=stub.url))
    return str(file)


def read_log(path: Path) -> GatewayAccount:
    account = GatewayAccount()
    for line in path.read_text().split("\n"):
        if line.startswith("{"):
            account.read_event(json.loads(line))
    return account


@pytest.mark.thorough  # it imports two SDKs; the tests below send the same without them
async def test_sdks_are_pointed_at_a_gateway_and_the_upstream_of_the_environment_stays(
    tmp_path: Path,
) -> None:
    async with run_stub() as stub:
        log = tmp_path / "g.db.requests.jsonl"
        running = Running(
            tmp_path,
            "--store",
            str(tmp_path / "g.db"),
            ANTHROPIC_BASE_URL=stub.url,
            OPENAI_BASE_URL=f"{stub.url}/v1",
            STATUS="7",
        )
        done = await running.finish("sdks")
        assert done.code == 7, done.err
        assert done.report["answers"] == [SAID, SAID]
        variables = done.report["variables"]
        assert variables["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
        assert variables["ANTHROPIC_BASE_URL"] != stub.url
        assert variables["OPENAI_BASE_URL"] == variables["ANTHROPIC_BASE_URL"] + "/v1"
        assert [seen.path for seen in stub.seen] == ["/v1/messages", "/v1/chat/completions"]
        account = read_log(log)
        assert account.calls == len(stub.seen)
        assert done.lines == account.write_lines()
        assert account.cost is not None
        assert account.cost > 0


async def grow(folder: Path, stub: Stub, *, steps: int = STEPS, **environment: str) -> Finished:
    """The scripted client's growing conversation through `lamina run`, with its store in the folder."""
    running = Running(
        folder,
        "--settings",
        write_settings(folder, stub),
        "--store",
        str(folder / "g.db"),
        **environment,
    )
    done = await running.finish("grow", str(steps))
    assert done.code == 0, done.err
    assert "what the model saw" not in done.err, "these settings keep no request"
    return done


@pytest.mark.skipif(sys.platform != "linux", reason="the client finds the gateway in /proc")
async def test_a_gateway_that_is_killed_comes_back_and_the_conversation_goes_on(tmp_path: Path) -> None:
    """The upstream sees what it would have seen, and the closing lines are the account of the log."""
    twin = await twin_of(tmp_path, steps=STEPS)
    first_cut = next(step for step in range(STEPS) if twin[step] != dump(messages_request(step)))
    async with run_stub() as stub:
        # The client waits until the log has the last answer. What else the log says of a cut follows that
        # line, so the gateway is killed one answer later.
        done = await grow(tmp_path / "killed", stub, KILLED_AT=str(first_cut + 2))
        assert once_each([seen.body for seen in stub.seen]) == twin
        # The spare one is killed as well: before it has taken over, or after.
        assert re.fullmatch(r"the gateway died and was started again \([12]\)", done.lines[0])
        account = read_log(tmp_path / "killed" / "g.db.requests.jsonl")
        assert done.lines[1:] == account.write_lines()
        assert account.calls + account.broken_off == len(stub.seen)
        assert account.cuts == 1
        assert account.cost is not None
        assert account.cost_without is not None
        assert account.cost_without > account.cost


async def test_a_spare_gateway_takes_over_on_the_same_port(tmp_path: Path) -> None:
    async with run_stub() as stub:
        account = GatewayAccount()
        settings = settings_for(stub, tmp_path / "g.db")
        with GatewaySupervisor(settings, account.read_event) as gateway:
            for step in range(2):
                pid = gateway.pid
                await post_until_answered(gateway.url, messages_request(step))
                os.kill(pid, signal.SIGKILL)
                await post_until_answered(gateway.url, messages_request(step))
                assert gateway.pid != pid
            assert gateway.restarts == 2
        assert not _is_alive(gateway.pid)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_signals_reach_the_client_and_its_end_is_the_end(tmp_path: Path) -> None:
    running = Running(tmp_path, "--keep", "nothing")
    process = await running.start("wait")
    assert await until(lambda: running.report.exists() and running.report.read_text() != "", 60)
    process.send_signal(signal.SIGTERM)
    done = await running.finish()
    assert done.code == 33
    assert done.lines == [explain_bypass(sys.executable)], "a client that asked nothing cost nothing"


def test_a_client_that_goes_past_lamina_is_told_what_to_set() -> None:
    """Its session was not free: nobody knows what it cost."""
    page = (ROOT / "docs" / "clients.md").read_text()
    for name, advice in OWN_ADDRESSES.items():
        assert advice in {line.next_step for line in check_client(name, 0, None, {})}
        assert explain_bypass(f"/usr/bin/{name}").endswith(f"past lamina; {advice}")
        assert f"| `{name}`" in page
    assert "ANTHROPIC_BASE_URL, OPENAI_BASE_URL, GOOGLE_GEMINI_BASE_URL" in explain_bypass("agent")
    assert "the argument -c" in explain_bypass("codex")
    assert "OPENCODE_CONFIG_CONTENT" in explain_bypass("opencode")


async def test_what_was_refused_did_not_go_past_lamina(tmp_path: Path) -> None:
    """The upstream refuses the only request."""
    async with run_stub() as stub:
        stub.faults.append(answer_with({"error": "no such key"}, status=401))
        done = await Running(tmp_path, "--keep", "nothing", ANTHROPIC_BASE_URL=stub.url).finish("ask")
    assert "lamina: 0 calls in 0 conversations, 0 cuts, 1 refused" in done.err
    assert "went past lamina" not in done.err


def test_a_signal_while_the_client_starts_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def start_slowly(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)  # it comes before anybody has the process
        return process

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    assert run_client(("sleep", "20"), os.environ) == 128 + signal.SIGTERM


def test_a_client_that_a_signal_ends_gives_128_and_its_number() -> None:
    assert run_client(("sh", "-c", "kill -KILL $$"), os.environ) == 128 + signal.SIGKILL


async def test_without_a_gateway_the_client_runs_on_its_own_address(tmp_path: Path) -> None:
    async with run_stub() as stub:
        (tmp_path / "file").write_text("not a store")
        running = Running(
            tmp_path,
            "--store",
            str(tmp_path / "file" / "g.db"),
            ANTHROPIC_BASE_URL=stub.url,
        )
        done = await running.finish("ask")
        assert done.code == 0, done.err
        assert done.report["variables"]["ANTHROPIC_BASE_URL"] == stub.url
        assert "the gateway did not start, so" in done.err
        assert len(stub.seen) == 1


async def test_a_gateway_that_runs_already_is_used(tmp_path: Path) -> None:
    async with proxied() as (_, gateway, client):
        await post(client, gateway.url, messages_request(0))
        done = await Running(tmp_path, "--gateway", gateway.url).finish("ask")
        assert done.code == 0, done.err
        variables = done.report["variables"]
        assert variables["ANTHROPIC_BASE_URL"] == gateway.url
        assert variables["OPENAI_BASE_URL"] == f"{gateway.url}/v1"
        assert "lamina log -f" in done.lines[0]


def test_a_gateway_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a store")
    settings = GatewaySettings(store=str(tmp_path / "file" / "g.db"))
    with pytest.raises(GatewayNotStarted, match="Error"), GatewaySupervisor(settings, lambda _: None):
        pass


def test_wrong_input_is_refused_before_anything_starts(tmp_path: Path) -> None:
    assert "there is no client to run" in run("run").err
    assert "there is no program 'no-such-client'" in run("run", "--", "no-such-client").err
    assert run("run", "--keep", "some", "--", sys.executable).code == 2
    assert run("run", "--profile", "vllm", "--", sys.executable).code == 2
    refused = run("run", "--gateway", URL, "--", sys.executable, "-c", "pass")
    assert refused.code == 2
    assert "does not answer" in refused.err
    assert run("run", "--settings", tmp_path / "none.toml", "--", sys.executable).code == 2


def test_each_client_is_pointed_in_its_own_way() -> None:
    claude = point_client(("claude", "-p", "hi"), URL, {}, window=64_000)
    assert claude.command == ("claude", "-p", "hi")
    expected = {"ANTHROPIC_BASE_URL": URL, "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "16000"}
    assert claude.environment == expected
    own_limit = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "9"}
    assert point_client(("claude",), URL, own_limit, window=64_000).environment == {
        "ANTHROPIC_BASE_URL": URL,
        **own_limit,
    }
    codex = point_client(("/usr/bin/codex", "exec", "hi"), URL, {})
    assert codex.command == ("/usr/bin/codex", "-c", f'openai_base_url="{URL}/v1"', "exec", "hi")
    assert codex.environment == {}
    gemini = point_client(("gemini",), URL, {})
    assert gemini.environment == {"GOOGLE_GEMINI_BASE_URL": URL}
    other = point_client(("agent",), URL, {})
    assert other.environment == {
        "ANTHROPIC_BASE_URL": URL,
        "OPENAI_BASE_URL": f"{URL}/v1",
        "GOOGLE_GEMINI_BASE_URL": URL,
    }
    assert point_client(("aider",), URL, {}).environment["OPENAI_API_BASE"] == f"{URL}/v1"
    assert find_client("qwen").apis == ("openai",)


@pytest.mark.parametrize(
    "before", ["", "{", "[]", '{"theme": "dark", "provider": {"openai": {"name": "x"}}}']
)
def test_the_settings_of_opencode_are_merged(before: str) -> None:
    variable = "OPENCODE_CONFIG_CONTENT"
    environment = point_client(("opencode",), URL, {variable: before}).environment
    config = json.loads(environment[variable])
    assert config["provider"]["anthropic"]["options"]["baseURL"] == f"{URL}/v1"
    assert config["provider"]["google"]["options"]["baseURL"] == f"{URL}/v1beta"
    if "theme" in before:
        assert config["theme"] == "dark"
        assert config["provider"]["openai"] == {"name": "x", "options": {"baseURL": f"{URL}/v1"}}


def test_the_gateway_is_reached_without_a_proxy() -> None:
    proxied = point_client(("claude",), URL, {"HTTP_PROXY": "http://p", "no_proxy": "corp"}).environment
    assert proxied["no_proxy"] == "corp,127.0.0.1,localhost"
    assert proxied["NO_PROXY"] == "127.0.0.1,localhost"


def test_addresses_of_the_environment_become_upstreams() -> None:
    environment = {"ANTHROPIC_BASE_URL": "http://a/", "OPENAI_BASE_URL": "http://o/x/v1/"}
    apis = find_client("agent").apis
    assert read_direct_urls(environment, apis) == {"anthropic": "http://a", "openai": "http://o/x"}
    with pytest.raises(BadInput, match="does not end in /v1") as refused:
        read_direct_urls({"OPENAI_BASE_URL": "http://o/api"}, apis)
    assert "--upstream" in str(refused.value)
    assert read_direct_urls({"OPENAI_BASE_URL": "http://o/api"}, find_client("claude").apis) == {}


@pytest.mark.parametrize(
    ("client", "profile"),
    [
        ("claude", "anthropic"),
        ("gemini", "gemini"),
        ("codex", "openai"),
        ("opencode", "openai"),
        ("", "openai"),
    ],
)
def test_an_upstream_speaks_the_api_of_the_client(client: str, profile: str) -> None:
    """`lamina run --upstream URL -- claude` answered 404: no server of Anthropic's API was known."""
    arguments = argparse.Namespace(upstream="http://127.0.0.1:9", profile=None, window=None)
    settings = apply_arguments(GatewaySettings(), arguments, place="run", client=client)
    assert settings.upstreams["upstream"].profile == profile


@pytest.mark.parametrize(
    ("options", "window", "line"),
    [
        ({}, "price", "about 48,000 tokens of a conversation are sent"),
        ({"prefer": "cost"}, "price", "about 32,000 tokens of a conversation are sent"),
        ({"window": "model"}, "model", "requests may fill the window of their model"),
        ({"window": 64_000}, "model", "requests are fitted to 64,000 tokens, as it is set"),
        ({"upstream": "http://127.0.0.1:1", "profile": "vllm"}, "price", "requests may fill the window"),
        ({"settings": "gateway.toml"}, "model", "requests may fill the window of their model"),
    ],
)
def test_run_chooses_by_price_unless_it_is_told_otherwise_and_says_so(
    options: dict[str, Any], window: str, line: str
) -> None:
    given = {"upstream": None, "profile": None, "window": None, "settings": None} | options
    arguments = argparse.Namespace(**given)
    defaults = GatewaySettings(upstreams=DEFAULT_UPSTREAMS)
    settings = choose_run_window(apply_arguments(defaults, arguments, place="run"), arguments)
    assert settings.policy.window == window
    assert describe_window(settings).startswith(line)


def test_rules_for_single_tools_come_from_the_command_line() -> None:
    tools = [("grep", "short"), ("vault", "never")]
    arguments = argparse.Namespace(upstream=None, profile=None, window=None, tools=tools)
    settings = apply_arguments(GatewaySettings(), arguments, place="run")
    assert settings.policy.tools == {"grep": "short", "vault": "never"}
    arguments.tools = [("grep", "shrot")]
    with pytest.raises(BadInput, match="the rule of the tool 'grep' is 'shrot'"):
        apply_arguments(GatewaySettings(), arguments, place="run")


def test_it_says_where_to_see_what_the_model_sees() -> None:
    url = "http://127.0.0.1:1"
    assert find_inspector(GatewaySettings(), url, "agent") == f"{url}/lamina/inspect/"
    assert find_inspector(GatewaySettings(policy=Policy(keep="all")), "", "agent") == "lamina inspect --open"
    hidden = GatewaySettings(inspect=False)
    assert "inspect" in find_inspector(hidden, url, "/usr/bin/claude")
    kept = GatewaySettings(inspect=False, policy=Policy(keep="all"), store="postgresql://me:secret@host/db")
    stored = find_inspector(kept, url, "agent")
    assert "inspect" in stored
    assert "secret" not in stored
