"""One policy for all doors: its fields, their checks, its form in files, and the same bytes at every door."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest

import lamina
from lamina import BadInput, Budget, Policy, blocking, build, fit_request, translate, wrap
from lamina.adapters.bridge import ContextFitter
from lamina.agent import open_for
from lamina.caches import rules_for
from lamina.core import Layout, Wording
from lamina.core.history_window import LastN
from lamina.core.ladder import ladder
from lamina.core.tokens import BYTES4
from lamina.fitting import Lifetimes
from lamina.fitting.policy import DEFAULT_POLICY, PLAIN_FIELDS, choose_policy, load_policy
from lamina.gateway import GatewaySettings, load_gateway_settings
from lamina.gateway.serving import check_start, serve
from lamina.relay.config import UpstreamSettings, check_settings
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.stores import MemoryStore
from tests.gateway.running import open_client, run_gateway
from tests.gateway.upstream_stub import run_stub
from tests.plain_client import plain_client

ADAPTERS = Path(lamina.__file__).parent / "adapters"

DOORS: dict[str, Callable[..., Any]] = {
    "fit_request": fit_request,
    "translate": translate,
    "wrap": wrap,
    "Session.open": Session.open,
    "blocking.Session.open": blocking.Session.open,
    "open_for": open_for,
    "serve": serve,
    "ContextFitter": ContextFitter,
}

OWN = Policy(
    budget=Budget(window=6_000, reserve=500, keep_last=1),
    prefer="memory",
    counter=BYTES4,
    order=ladder,
    wording=Wording(tagged=False),
    breakpoints="keep",
    recall="off",
    history=LastN(12),
    keep="nothing",
)
"""A policy with a choice in most fields."""


def history(steps: int) -> list[dict[str, Any]]:
    """A talk of so many steps, in the words of the Chat Completions API."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Which ports do the services use?"}]
    for step in range(steps):
        messages.append({"role": "assistant", "content": f"I look at service {step}. " * 20})
        messages.append({"role": "user", "content": f"It says that port {8_000 + step} is open. " * 20})
    return messages


def request_of(steps: int) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": history(steps)}


@pytest.mark.parametrize("name", DOORS)
def test_every_door_takes_the_policy_and_spells_no_field_of_it_otherwise(name: str) -> None:
    parameters = inspect.signature(DOORS[name]).parameters
    assert parameters["policy"].default is None
    assert parameters["policy"].kind is inspect.Parameter.KEYWORD_ONLY
    beside = set(parameters) & set(Policy.__struct_fields__)
    assert beside <= {"budget"}, "a field of the policy is a parameter of its own"


def test_fit_request_takes_few_parameters_beside_the_policy() -> None:
    names = list(inspect.signature(fit_request).parameters)
    assert names == [
        "request",
        "ledger",
        "usage",
        "policy",
        "budget",
        "dialect",
        "idle",
        "drop_block",
        "memo",
    ]


def test_every_adapter_takes_the_policy_and_spells_no_field_of_it_otherwise() -> None:
    """The sources are read, since most frameworks are not installed where the tests run."""
    doors: set[str] = set()
    for path in ADAPTERS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            names = {argument.arg for argument in node.args.kwonlyargs}
            if "budget" not in names:
                continue
            if node.name == "fit":
                continue  # one call of a `ContextFitter`, which was made with its policy
            doors.add(path.stem)
            assert "policy" in names, f"{path.name}: {node.name}"
            assert names & set(Policy.__struct_fields__) == {"budget"}, f"{path.name}: {node.name}"
    assert doors == {"bridge", "langchain", "litellm", "openai_agents", "pydantic_ai"}


def send_wrapped(request: Mapping[str, Any], policy: Policy) -> Any:
    """What a wrapped client sends."""
    sent: list[Any] = []

    def answer(arguments: Any) -> Any:
        sent.append(arguments)
        return {}

    wrap(plain_client(answer, "chat.completions"), policy=policy).chat.completions.create(**request)
    return sent[0]


def send_through_gateway(request: Mapping[str, Any], policy: Policy) -> Any:
    """What the upstream of a gateway gets."""

    async def send() -> Any:
        async with run_stub() as stub:
            upstreams = {"openai": UpstreamSettings(url=stub.url, profile="openai")}
            settings = GatewaySettings(port=0, policy=policy, upstreams=upstreams)
            async with run_gateway(settings) as gateway, open_client() as client:
                url = f"{gateway.url}/v1/chat/completions"
                async with client.post(url, json=request, headers={"Authorization": "Bearer k"}) as answer:
                    await answer.read()
            return json.loads(stub.seen[-1].body)

    return anyio.run(send)


def send_by_adapter(request: Mapping[str, Any], policy: Policy) -> Any:
    """What an adapter gives to its framework."""
    fitter = ContextFitter(model=request["model"], policy=policy)
    return {**request, "messages": list(fitter.fit(request["messages"]).messages)}


SENDERS: dict[str, Callable[[Mapping[str, Any], Policy], Any]] = {
    "wrap": send_wrapped,
    "gateway": send_through_gateway,
    "adapter": send_by_adapter,
}


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize(
    "policy",
    [
        OWN,
        msgspec.structs.replace(OWN, history=None),
        msgspec.structs.replace(OWN, recall="handles"),
        msgspec.structs.replace(OWN, users="kept"),
    ],
    ids=["history", "room", "handles", "users"],
)
@pytest.mark.parametrize("steps", [4, 30])
def test_a_policy_does_the_same_at_every_door(sender: str, policy: Policy, steps: int) -> None:
    request = request_of(steps)
    expected = fit_request(request, policy=policy).request
    assert SENDERS[sender](request, policy) == expected
    assert (expected == request) is (steps == 4)


def test_a_session_follows_the_same_policy_and_keeps_what_belongs_to_the_conversation() -> None:
    async def talk() -> None:
        store = MemoryStore()
        log = fit_request(request_of(30), policy=OWN).log
        async with Session.open(store, "a", model="gpt-4o", policy=OWN, settings=Settings()) as session:
            await session.add(*log)
            await session.ask("And now?")
            request = await session.request()
            assert session.setup.budget == OWN.own_budget
        whole = {"model": "gpt-4o", "messages": [*history(30), {"role": "user", "content": "And now?"}]}
        assert request["messages"] == fit_request(whole, policy=OWN).request["messages"]
        async with Session.open(store, "a", settings=Settings()) as session:
            setup = session.setup
            assert (setup.budget, setup.prefer, setup.history) == (OWN.own_budget, "memory", LastN(12))
            assert setup.stored_options is not None
            assert not setup.stored_options.handles

    anyio.run(talk)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("budget", "4k"),
        ("budget", True),
        ("budget", -1),
        ("budget", 0),
        ("prefer", "speed"),
        ("history", True),
        ("history", "some"),
        ("counter", len),
        ("rules", "anthropic-2"),
        ("rules", ["anthropic"]),
        ("order", "newest"),
        ("kinds", ["file"]),
        ("wording", "short"),
        ("layout", "hoisted"),
        ("breakpoints", "all"),
        ("recall", True),
        ("users", True),
        ("keep", ["all"]),
    ],
)
def test_a_wrong_field_is_refused_where_the_policy_is_made(field: str, value: Any) -> None:
    with pytest.raises(BadInput, match=rf"^(Policy|Budget): {field if value != -1 else ''}"):
        Policy(**{field: value})


def test_rules_are_named_as_a_dialect_is() -> None:
    named = Policy(rules="anthropic")
    assert named == Policy(rules=rules_for("anthropic")) == load_policy({"rules": "anthropic"})
    assert named.find_rules("gpt-5", dialect="openai_chat") is rules_for("anthropic")
    assert load_policy(named.dump()) == named
    with pytest.raises(BadInput, match="use one of anthropic, bedrock"):
        Policy(rules="claude")


def test_a_reserve_must_be_below_a_window_of_the_same_policy() -> None:
    with pytest.raises(BadInput, match="reserve is 4000; it must be at least 0 and below the window"):
        Policy(budget=Budget(window=4_000, reserve=4_000))
    small_model = Policy(budget=Budget(reserve=100_000)).fill_budget(Budget(window=8_000))
    assert small_model.reserve == 4_000, "half of a model's window is left for the request"


def test_a_budget_without_a_window_has_that_of_the_model() -> None:
    reserved = Policy(budget=Budget(reserve=4_000, keep_last=2))
    assert reserved.own_budget is None
    assert reserved.find_budget("claude-opus-4-1") == Budget(window=200_000, reserve=4_000, keep_last=2)
    fitted = fit_request({**request_of(2), "model": "gpt-4"}, policy=reserved)
    assert (fitted.window, fitted.envelope.room) == (8_192, 8_192 - 4_000)
    with pytest.raises(BadInput, match="the budget has no window"):
        build(fitted.log, budget=Budget(reserve=4_000))


def test_a_whole_number_is_a_window() -> None:
    assert Policy(budget=9_000) == Policy(budget=Budget(window=9_000))
    assert choose_policy(Policy(recall="off"), budget=9_000).dump() == {
        "budget": {"window": 9_000},
        "recall": "off",
    }
    with pytest.raises(BadInput, match="budget is 0"):
        Policy(budget=0)


@pytest.mark.parametrize("wrong", [{"budget": 9_000}, Budget(window=9_000), "auto"])
@pytest.mark.parametrize("name", ["fit_request", "wrap", "Session.open", "ContextFitter"])
def test_what_is_no_policy_is_refused_at_every_door(name: str, wrong: Any) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "fit_request": (request_of(1),),
        "wrap": (SimpleNamespace(chat=lambda **_: None),),
        "Session.open": ("nowhere/chats.db", "a"),
        "ContextFitter": (),
    }

    async def open_door() -> None:
        opened = DOORS[name](*arguments[name], policy=wrong)
        await opened.__aenter__()  # a session reads it when it is entered

    with pytest.raises(BadInput, match=r"policy is .*lamina\.Policy\("):
        anyio.run(open_door)


def test_a_policy_of_plain_data_can_be_written_down_and_read_again() -> None:
    plain = Policy(
        budget=Budget(window=9_000, reserve=100, trigger=0.9),
        window="price",
        prefer="cost",
        history=LastN(4),
        counter="tokenizer.json",
        layout=Layout(library="hoisted"),
        breakpoints=Lifetimes(stable="1h"),
        recall="tool",
        keep="all",
    )
    assert load_policy(json.loads(json.dumps(plain.dump()))) == plain
    assert DEFAULT_POLICY.dump() == {}
    assert load_policy({}) == DEFAULT_POLICY
    with pytest.raises(BadInput, match="order is not plain data"):
        Policy(order=ladder).dump()
    with pytest.raises(BadInput, match=r"unknown field `size`.*the fields are budget, "):
        load_policy({"size": 9_000})
    assert {"order", "kinds", "wording"}.isdisjoint(PLAIN_FIELDS)


def test_a_policy_over_another_takes_what_it_leaves_open() -> None:
    gateway = Policy(budget=9_000, recall="off", keep="all")
    both = Policy(budget=4_000, breakpoints="keep").over(gateway)
    assert both == Policy(budget=4_000, breakpoints="keep", recall="off", keep="all")


def test_the_gateway_reads_the_same_names_and_each_upstream_has_its_own(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        """
        [policy]
        recall = "handles"
        prefer = "memory"
        [upstreams.local]
        url = "http://127.0.0.1:8080"
        profile = "llama.cpp"
        policy.budget = 9000
        [upstreams.other]
        url = "http://127.0.0.1:8081"
        profile = "vllm"
        policy = {budget = {window = 8000, keep_last = 2}, recall = "off"}
        """
    )
    settings = load_gateway_settings(file, {})
    check_settings(settings, {}, file)
    shared = Policy(recall="handles", prefer="memory")
    assert settings.policy == shared
    policies = {name: upstream.policy for name, upstream in settings.list_upstreams().items()}
    assert policies["local"] == msgspec.structs.replace(shared, budget=9_000)
    own = Budget(window=8_000, keep_last=2)
    assert policies["other"] == msgspec.structs.replace(shared, budget=own, recall="off")


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("[policy]\nrecall = 'mcp'\n", ":2", "recall"),
        ("[policy]\norder = 'newest'\n", ":2", "order"),
        ("[policy]\n\nbudget.window = -1\n", ":3", "window is -1"),
        ("keep = 'all'\n", ":1", "unknown field `keep`"),
        ("[policy]\nrecall = 'tool'\nkeeep = 'all'\n", ":3", "unknown field `keeep`"),
        (
            "[upstreams.x]\nurl = 'http://a'\nprofile = 'vllm'\npolicy.keep = 'all'\n",
            ":4 (upstreams.x.policy.keep)",
            "set it under",
        ),
    ],
)
def test_a_wrong_policy_of_a_gateway_is_refused_with_its_line(
    tmp_path: Path, text: str, place: str, problem: str
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=problem) as caught:
        check_settings(load_gateway_settings(file, {}), {}, file)
    assert caught.value.place == f"{file}{place}"


def test_serve_refuses_what_cannot_work_before_it_serves(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    with pytest.raises(BadInput, match=r"serve: policy is"):
        serve(policy="off", store=store)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no access token is set"):
        serve(policy=Policy(budget=9_000), host="0.0.0.0", store=store)  # noqa: S104 - refused
    with pytest.raises(BadInput, match="there is no such file"):
        serve(settings=tmp_path / "nowhere.toml")
    upstreams = {"a": UpstreamSettings(url="http://127.0.0.1:9", profile="vllm")}
    many = GatewaySettings(port=0, workers=2, store=str(store), policy=OWN, upstreams=upstreams)
    with pytest.raises(BadInput, match="is not plain data"):
        check_start(many, {})


def test_serve_runs_the_gateway_with_the_policy_over_that_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[GatewaySettings] = []
    monkeypatch.setattr("lamina.gateway.serving.run_server", ran.append)
    file = tmp_path / "gateway.toml"
    file.write_text("[policy]\nrecall = 'off'\nbudget = 9000\n")
    lamina.serve(policy=Policy(budget=4_000), settings=file, port=0, store=tmp_path / "gateway.db")
    (settings,) = ran
    assert settings.policy == Policy(budget=4_000, recall="off")
    assert (settings.port, settings.store) == (0, str(tmp_path / "gateway.db"))
