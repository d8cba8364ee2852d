"""Every parser of what comes from outside: absurd nesting is a typed error, or is passed on as it is."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina import Budget, Policy, build, fit_request
from lamina.adapters._stored_values import decode_stored
from lamina.caches import load_rules
from lamina.cli import main
from lamina.cli.chat.terminal import describe_call
from lamina.context.search import answer_search_call as search
from lamina.context.tools import answer, memory_tools
from lamina.core import Raw, Text, ToolCall, text_of
from lamina.core.values import Ledger, Role, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.json_values import decode_arguments
from lamina.errors import BadInput, Damaged, LaminaError
from lamina.formats.codec import decode, encode
from lamina.models import load_models
from lamina.models.counters import from_file
from lamina.segments import assistant, call, result, user
from lamina.sessions import RuntimeOptions, Session
from lamina.settings import Settings, load_settings
from lamina.stores import MemoryStore
from tests.bounded import bounded_work

SRC = Path(__file__).resolve().parent.parent / "src" / "lamina"

PARSERS = frozenset(
    "json.loads json.load msgspec.json.decode tomllib.loads tomllib.load msgspec.toml.decode".split()
)
"""Calls that raise RecursionError for nesting that is deep enough."""

NOT_FROM_OUTSIDE = {
    "conversations/erasing.py": "its _UNREADABLE has RecursionError, and states were decoded before",
    "relay/request_bodies.py:_find_values": "one string, which has no depth",
    "gateway/supervised.py:main": "settings that the supervisor wrote",
    "gateway/server.py:create_worker_app": "settings that the first process wrote for its workers",
    "models/facts.py:listed_models": "a file of lamina's own",
    "diagnose/text_changes.py:_encode_in_order": "bytes that lamina has just written from a value",
    "diagnose/compared.py:_read_text": "bytes that lamina has just written from a value it could walk",
    "sessions/search.py:_source_id": "the state of an index, which reading has decoded before",
    "workspace/fetch.py:resolve_host": "one line from a process of lamina's own",
    "testing/": "suites, which read what they wrote",
}
"""Places where nothing nested can arrive, or where somebody else catches it."""


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def catches(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"Exception"}
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {dotted(each) for each in types}


def unguarded(node: ast.AST, function: str, *, guarded: bool) -> Iterator[tuple[str, int]]:
    """Each call of a parser that no `except RecursionError` of its own function is around."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function, guarded = node.name, False
    if isinstance(node, ast.Call) and dotted(node.func) in PARSERS and not guarded:
        yield function, node.lineno
    if isinstance(node, ast.Try):
        caught = {name for handler in node.handlers for name in catches(handler)}
        safe = guarded or bool(caught & {"RecursionError", "Exception", "BaseException"})
        for statement in node.body:
            yield from unguarded(statement, function, guarded=safe)
        rest: list[ast.AST] = [*node.handlers, *node.orelse, *node.finalbody]
    else:
        rest = list(ast.iter_child_nodes(node))
    for inner in rest:
        yield from unguarded(inner, function, guarded=guarded)


def list_unguarded(path: Path) -> Iterator[str]:
    """Each place of a file that parses what may be nested for ever, and expects it not to be."""
    text = path.read_text(encoding="utf-8")
    if not any(parser in text for parser in PARSERS):
        return
    name = path.relative_to(SRC).as_posix()
    for function, line in unguarded(ast.parse(text), "", guarded=False):
        if not any(f"{name}:{function}".startswith(place) for place in NOT_FROM_OUTSIDE):
            yield f"{name}:{line}"


def test_who_parses_what_comes_from_outside_expects_any_depth() -> None:
    found = [place for path in sorted(SRC.rglob("*.py")) for place in list_unguarded(path)]
    assert found == [], "catch RecursionError there, or say in NOT_FROM_OUTSIDE why nothing nested can arrive"


def test_the_gate_sees_a_parser_that_expects_nothing() -> None:
    code = "def f():\n try:\n  json.loads(a)\n except {}:\n  json.loads(b)\n"
    assert list(unguarded(ast.parse(code.format("ValueError")), "", guarded=False)) == [("f", 3), ("f", 5)]
    safe = code.format("(ValueError, RecursionError)")
    assert list(unguarded(ast.parse(safe), "", guarded=False)) == [("f", 5)]


DEPTHS = [200, 950, 60_000]


def nested(depth: int, leaf: Any = "x") -> Any:
    value = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def nested_text(depth: int) -> str:
    return '{"a":[' * (depth // 2) + "1" + "]}" * (depth // 2)


def typed(work: Callable[[], Any]) -> Any:
    """What comes of it, if it is not a typed error."""
    try:
        with bounded_work():
            return work()
    except LaminaError as refused:
        return refused


@pytest.mark.parametrize("depth", DEPTHS)
def test_settings_rules_and_models(depth: int, tmp_path: Path) -> None:
    for number, line in enumerate(
        (f"a = {'[' * depth}{']' * depth}", f"a = {'{a=' * depth}1{'}' * depth}", f"a = {'9' * depth}")
    ):
        file = tmp_path / f"{number}.toml"
        file.write_text(f"{line}\n")
        for load in (load_rules, partial(load_settings, environment={}), load_models):
            assert isinstance(typed(partial(load, file)), BadInput)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_tokenizer_file(depth: int, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(nested_text(depth))
    assert isinstance(typed(partial(from_file, file)), BadInput)


@pytest.mark.parametrize("depth", DEPTHS)
def test_records_and_ledgers(depth: int) -> None:
    typed(lambda: encode(user("x", meta={"m": nested(depth)})))
    typed(lambda: list(decode([f'{{"v":1,"segment":{nested_text(depth)}}}'.encode()])))
    typed(lambda: Ledger.load({"version": 2, "lines": nested(depth)}))
    typed(
        lambda: build([Segment(role=Role.USER, kind="user", parts=(Raw(dialect="a", data=nested(depth)),))])
    )


@pytest.mark.parametrize("name", sorted(DIALECTS))
@pytest.mark.parametrize("depth", DEPTHS)
def test_requests_and_answers_in_every_dialect(name: str, depth: int) -> None:
    dialect, deep = DIALECTS[name], nested(depth)
    answers: list[dict[str, Any]] = [{"choices": deep}, {"content": [deep]}, {"candidates": deep}]
    for answered in (*answers, {"output": deep}, {"message": {"content": deep}}, {"message": deep}):
        typed(partial(dialect.answers.absorb, answered))
    for request in hostile(depth):
        typed(partial(fit_request, request, dialect=name))
        typed(partial(fit_request, request, dialect=name, budget=Budget(window=600, reserve=50)))
        typed(partial(dialect.wire.check, request))
        typed(partial(dialect.cache.stream, request))


def hostile(depth: int) -> Iterator[dict[str, Any]]:
    """Requests with something nested in each place where one may stand, in the words of all dialects."""
    deep, text = nested(depth), nested_text(depth)
    asked = {"role": "user", "content": "x"}
    function = {"name": "f", "arguments": text}
    calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": function}]}
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": deep}]}
    used = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": deep}]}
    yield {"model": "gpt-5", "messages": [asked | {"strange": deep}]}
    yield {
        "model": "gpt-5",
        "messages": [asked, calls, {"role": "tool", "tool_call_id": "a", "content": text}],
    }
    yield {"model": "gpt-5", "messages": [asked], "tools": [{"name": "f", "input_schema": deep}]}
    yield {"model": "gpt-5", "messages": [{"role": "user", "content": deep}]}
    yield {"model": "gpt-5", "messages": [asked], "system": deep, "response_format": deep}
    yield {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [asked, use, used]}
    yield {"model": "gpt-5", "input": deep}
    yield {"model": "gpt-5", "input": [{"type": "function_call", "call_id": "a", **function}, asked]}
    yield {"model": "gemini-2.5-pro", "contents": deep}
    parts = [{"functionCall": {"name": "f", "args": deep}}]
    yield {"model": "gemini-2.5-pro", "contents": [{"role": "user", "parts": parts}]}
    yield {"model": "x", "prompt": deep}


def test_what_an_adapter_finds_in_a_store() -> None:
    assert decode_stored(b'{"a": 1}') == {"a": 1}
    for source in (nested_text(60_000).encode(), b"{", b'"\xff"'):
        assert isinstance(typed(partial(decode_stored, source)), Damaged)
    assert isinstance(typed(partial(decode_stored, b"[]", dict)), Damaged)


@pytest.mark.parametrize("depth", DEPTHS)
def test_arguments_that_a_model_wrote(depth: int) -> None:
    text = nested_text(depth)
    assert describe_call(ToolCall(id="a", name="f", arguments=text)).startswith("f ")
    assert set(decode_arguments(text)) <= {"a", "arguments"}
    made = anyio.run(answer, memory_tools(None), ToolCall(id="a", name="forget", arguments=text))  # type: ignore[arg-type]
    assert made.parts[0].error  # type: ignore[union-attr]
    refused = typed(lambda: anyio.run(search, None, text))  # type: ignore[arg-type]
    assert isinstance(refused, BadInput)
    log = [user("x"), assistant("y"), call("read_file", text, id="a"), result(text, id="a")] * 8
    typed(lambda: build(log, budget=Budget(window=1_500, reserve=100)))


@pytest.mark.parametrize("redacting", [False, True])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_session_keeps_what_a_model_wrote_or_refuses_it(depth: int, *, redacting: bool) -> None:
    text = nested_text(depth)

    async def talk() -> str:
        hook = (lambda said: said.replace("secret", "-")) if redacting else None
        kept = Session.open(
            MemoryStore(),
            "a",
            model="gpt-5",
            policy=Policy(budget=Budget(window=3_000_000), recall="tool"),
            runtime=RuntimeOptions(redact=hook),
            settings=Settings(),
        )
        async with kept as session:
            await session.ask("Go.")
            results: dict[str, dict[str, str | Text]] = {"f": {"f": text}, "recall": {}}
            for name, given in results.items():
                function = {"name": name, "arguments": f'{{"a": "secret", "b": {text}}}'}
                message = {"role": "assistant", "tool_calls": [{"id": name, "function": function}]}
                await session.record({"choices": [{"message": message}]})
                await session.results(given)
            with contextlib.suppress(BadInput):
                await session.add(user("x", meta={"m": nested(depth)}))
            return text_of(next(one for one in session.log if one.kind == "tool_call").parts)

    said = anyio.run(talk)
    assert ("secret" in said) is not redacting


@pytest.mark.parametrize("command", ["fit", "fit --check", "fit --explain", "diff"])
@pytest.mark.parametrize("depth", DEPTHS)
def test_files_at_the_command_line(
    command: str, depth: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = '{"model": "gpt-5", "messages": [{"role": "user", "content": "x", "odd": %s}]}'
    for number, text in enumerate((nested_text(depth), asked % nested_text(depth))):
        file = tmp_path / f"{number}.json"
        file.write_text(text)
        arguments = [*command.split(), str(file), *([str(file)] if command == "diff" else [])]
        assert main(arguments) in {0, 1, 2}
        assert "Traceback" not in capsys.readouterr().err
