"""The recipes of docs/frameworks.md, each in its framework's own agent, in front of a strict server.

The block of a section is run as it stands, except for addresses and the window. What it makes is given to an
agent. The server refuses what its API would refuse, and what is over the window.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import lamina
from tests.adapters import over_wire
from tests.adapters.long_session import SYSTEM, Answer, Script, read_page
from tests.adapters.recipes import read_block
from tests.servers.ports import free_port
from tests.wrapped.scripted_api import Call, Said

ROOT = Path(__file__).resolve().parent.parent.parent
GATEWAY = "http://127.0.0.1:4949"
"""Where the page says that a gateway is."""

STEPS = 60

Drive = Callable[[dict[str, Any], Script, str], None]
"""Ask an agent every question. It gets the names of the block, the script, and the mode."""


def read_page_or_say(number: int) -> str:
    """Read a page of the manual.

    Args:
        number: The number of the page.

    """
    return read_page(number)


read_page_or_say.__name__ = "read_page"


@contextmanager
def run_gateway(upstream: str, folder: Path) -> Iterator[str]:
    """A gateway in front of the server, in the environment that has what a gateway needs."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        os.environ.get("LAMINA_PYTHON", sys.executable),
        "-m",
        "lamina",
        "serve",
        "--upstream",
        upstream,
    ]
    command += [
        "--port",
        url.rpartition(":")[2],
        "--window",
        str(over_wire.BUDGET.window),
        "--store",
        f"{folder}/kept.db",
    ]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(300):
                with suppress(OSError), urlopen(f"{url}/healthz", timeout=1):  # noqa: S310 - on this machine
                    break
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()


def run_block(section: str, url: str, gateway: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the block of a section, and return its names."""
    for name in ("OPENAI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    monkeypatch.setenv("OPENAI_API_BASE", f"{url}/v1")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", url)
    monkeypatch.setattr(lamina, "transport", partial(lamina.transport, budget=over_wire.BUDGET))
    names: dict[str, Any] = {}
    exec(read_block(section).replace(GATEWAY, gateway), names)  # noqa: S102 - the page's own code
    return names


def drive_smolagents(names: dict[str, Any], script: Script, mode: str) -> None:
    from smolagents import LogLevel, ToolCallingAgent, tool

    agent = ToolCallingAgent(
        tools=[tool(read_page_or_say)],
        model=names["model"],
        stream_outputs=mode == "stream",
        max_steps=STEPS,
        verbosity_level=LogLevel.OFF,
    )
    for turn in range(over_wire.TURNS):
        agent.run(script.begin(turn), reset=turn == 0)


def drive_haystack(names: dict[str, Any], script: Script, mode: str) -> None:
    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function

    generator = names["generator"]
    if mode == "stream":
        generator.streaming_callback = lambda _: None
    tool = create_tool_from_function(read_page_or_say, name="read_page")
    agent = Agent(chat_generator=generator, tools=[tool], max_agent_steps=STEPS)
    history = [ChatMessage.from_system(SYSTEM)]
    for turn in range(over_wire.TURNS):
        history.append(ChatMessage.from_user(script.begin(turn)))
        if mode == "async":
            result = asyncio.run(agent.run_async(messages=history))
        else:
            result = agent.run(messages=history)
        history = result["messages"]


def drive_llama_index(names: dict[str, Any], script: Script, mode: str) -> None:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.tools import FunctionTool

    async def ask() -> None:
        tool = FunctionTool.from_defaults(read_page_or_say, name="read_page")
        agent = FunctionAgent(
            llm=names["llm"], tools=[tool], system_prompt=SYSTEM, streaming=mode == "stream"
        )
        memory = ChatMemoryBuffer.from_defaults(token_limit=10_000_000)
        for turn in range(over_wire.TURNS):
            await agent.run(script.begin(turn), memory=memory, max_iterations=STEPS)

    asyncio.run(ask())


def drive_agent_framework(names: dict[str, Any], script: Script, mode: str) -> None:
    from agent_framework import Agent, AgentSession, tool

    async def ask() -> None:
        agent = Agent(
            client=names["client"], instructions=SYSTEM, tools=[tool(read_page_or_say, name="read_page")]
        )
        session = AgentSession()
        for turn in range(over_wire.TURNS):
            question = script.begin(turn)
            if mode == "async":
                await agent.run(question, session=session, options={"store": False})
                continue
            async for _ in agent.run(question, session=session, options={"store": False}, stream=True):
                pass

    asyncio.run(ask())


def drive_strands(names: dict[str, Any], script: Script, mode: str) -> None:
    from strands import Agent, tool
    from strands.agent.conversation_manager import NullConversationManager

    agent = Agent(
        model=names["model"],
        system_prompt=SYSTEM,
        tools=[tool(name="read_page")(read_page_or_say)],
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )

    async def read_stream(question: str) -> None:
        async for _ in agent.stream_async(question):
            pass

    for turn in range(over_wire.TURNS):
        question = script.begin(turn)
        match mode:
            case "sync":
                agent(question)
            case "async":
                asyncio.run(agent.invoke_async(question))
            case "stream":
                asyncio.run(read_stream(question))


def drive_inspect(names: dict[str, Any], script: Script, mode: str) -> None:
    import inspect_ai
    from inspect_ai.agent import react, run
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser, GenerateConfig
    from inspect_ai.solver import solver
    from inspect_ai.tool import ToolDef

    @solver
    def read_pages() -> Any:
        tool = ToolDef(
            read_page_async,
            name="read_page",
            description="Read a page.",
            parameters={"number": "Its number."},
        )
        agent = react(prompt=SYSTEM, tools=[tool.as_tool()], submit=False)

        async def solve(state: Any, generate: Any) -> Any:  # noqa: ARG001 - Inspect's
            messages: list[Any] = []
            for turn in range(over_wire.TURNS):
                messages.append(ChatMessageUser(content=script.begin(turn)))
                messages = (await run(agent, messages)).messages
            return state

        return solve

    assert mode == "async"
    task = inspect_ai.Task(
        dataset=[Sample(input="")], solver=read_pages(), config=GenerateConfig(max_retries=0)
    )
    [log] = inspect_ai.eval(task, model=names["model"], log_dir="logs", display="none", score=False)
    assert log.status == "success", log.error


async def read_page_async(number: int) -> str:
    return read_page(number)


def drive_crewai(names: dict[str, Any], script: Script, mode: str) -> None:
    from crewai import Agent
    from crewai.tools import tool

    llm = names["llm"]
    llm.stream = mode == "stream"
    agent = Agent(
        role="reader",
        goal="read",
        backstory=SYSTEM,
        llm=llm,
        tools=[tool("read_page")(read_page_or_say)],
        max_iter=STEPS,
        respect_context_window=False,
    )
    history: list[Any] = []
    for turn in range(over_wire.TURNS):
        messages = [*history, {"role": "user", "content": script.begin(turn)}]
        if mode == "async":
            result = asyncio.run(agent.kickoff_async(messages))
        else:
            result = agent.kickoff(messages)
        history = result.messages[1:]


def drive_google_adk(names: dict[str, Any], script: Script, mode: str) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.apps import App
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.genai import types

    agent = LlmAgent(name="reader", model=names["model"], instruction=SYSTEM, tools=[read_page_or_say])
    app = App(name="manual", root_agent=agent)
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    config = RunConfig(streaming_mode=StreamingMode.SSE if mode == "stream" else StreamingMode.NONE)

    async def ask() -> None:
        for turn in range(over_wire.TURNS):
            message = types.Content(role="user", parts=[types.Part(text=script.begin(turn))])
            async for _ in runner.run_async(
                user_id="one", session_id="two", new_message=message, run_config=config
            ):
                pass

    asyncio.run(ask())


def write_final_answer(answer: Answer) -> Said:
    """An agent of smolagents answers with a tool, too."""
    if answer.name:
        return over_wire.write_calls(answer)
    return [Call("final_answer", {"answer": answer.text}, answer.call_id)]


RECIPES: dict[str, tuple[str, Drive, tuple[str, ...]]] = {
    "agent_framework": ("Microsoft Agent Framework", drive_agent_framework, ("async", "stream")),
    "crewai": ("CrewAI", drive_crewai, ("sync", "async", "stream")),
    "google.adk": ("Google ADK", drive_google_adk, ("async", "stream")),
    "haystack": ("Haystack", drive_haystack, ("sync", "async", "stream")),
    "inspect_ai": ("Inspect", drive_inspect, ("async",)),
    "llama_index": ("LlamaIndex", drive_llama_index, ("async", "stream")),
    "smolagents": ("smolagents", drive_smolagents, ("sync", "stream")),
    "strands": ("Strands", drive_strands, ("sync", "async", "stream")),
}
"""By the package that each needs: its section of the page, its agent, and the modes that it has."""

WAYS = [(package, mode) for package, (_, _, modes) in RECIPES.items() for mode in modes]


@pytest.mark.parametrize(("package", "mode"), WAYS)
def test_a_recipe(
    package: str, mode: str, record_property: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    section, drive, _ = RECIPES[package]

    def run(server: over_wire.StrictServer) -> None:
        if GATEWAY not in read_block(section):
            drive(run_block(section, server.url, "", monkeypatch), server.script, mode)
            return
        with run_gateway(server.url, tmp_path) as gateway:
            drive(run_block(section, server.url, gateway, monkeypatch), server.script, mode)

    write = over_wire.write_calls
    if package == "smolagents":
        write = write_final_answer
    over_wire.play_over_wire(mode, run, record_property, write=write)
