"""An API with a model that follows a script: it calls the client's shell, recalls what was cut, and ends.

The model knows how far it is from the request alone, since a request may come again after the gateway died:
the id of each call names its step. A request that breaks a rule of its API gets a 400, as the API would
answer it. Models that bind their thinking think before each answer, and the binding is enforced.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from lamina.dialects import DIALECTS
from lamina.relay.routes import match_route
from tests.servers.bound_thinking import Refused, ThinkingBinding
from tests.servers.serving import serve_http
from tests.wrapped.scripted_api import APIS, Call, Said, Thought, add_usage

SHELLS = ("Bash", "exec_command", "shell_command", "run_shell_command", "bash", "shell")
AGENTS = ("Agent", "Task", "task")
"""The names that clients give to their tools."""

STEP = re.compile(r"call_([0-9]+)_shell")
"""Finds the number of a step in the id of its call. A recalled text has no ids."""

COMMAND = re.compile(r"line-([0-9]+)-%06g")
"""Finds the number of a step in its shell command."""

PROMPT = re.compile(r"TASK-STEP ([0-9]+)")
"""Finds the number of a step in the user's prompts."""

HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
LAST_TURNS = 12
AFTER_STEPS = 8_000
SUB_STEPS = 9_000
FIRST_STEPS = {"after": AFTER_STEPS, "sub": SUB_STEPS}
"""Where the steps of other conversations begin. Each has two."""

OWN_TOOLS = ("recall",)
"""Tools that the gateway answers."""

AGENT_CALL = "call_agent"
MOST_REQUESTS = 400
SUB_TASK = "TASK-SUB: run two steps with your shell tool and say what they printed."
DONE = "ALL-DONE"

JSON_ANSWER = {
    "reasoning": "none",
    "model_choice": "pro",
    "next_speaker": "user",
    "complexity_reasoning": "none",
    "complexity_score": 1,
    "unproductive_state_analysis": "none",
    "unproductive_state_confidence": 0.0,
    "title": "Steps",
    "isNewTopic": False,
}
"""Answers every question of a client's own that wants JSON: which model, who speaks next, a title."""


class Arrived(NamedTuple):
    """A request that arrived. `label` is the conversation that it belongs to, by its own words."""

    label: str
    dialect: str
    body: bytes
    request: dict[str, Any]
    violations: tuple[str, ...] = ()
    recalls: bool = False
    at: float = 0.0


class ScriptedUpstream:
    """The model. `limit` is the step after which it is done, `recall_at` the steps after which it recalls."""

    def __init__(self, *, recall_at: frozenset[int], agent_at: int, bytes_per_step: int) -> None:
        self.url = ""
        self.limit = 0
        self.arrived: list[Arrived] = []
        self.before_answer: Callable[[Arrived], None] = _do_nothing
        self._recall_at = recall_at
        self._agent_at = agent_at
        self._lines = max(bytes_per_step // 31, 1)
        self._lock = threading.Lock()
        self.binding = ThinkingBinding()

    def answer(self, path: str, body: bytes, betas: str = "") -> tuple[int, str, bytes]:
        """A status, a content type and a body. `betas` is the header of Anthropic's API."""
        route = match_route("POST", path.partition("?")[0])
        if route.action == "count":
            return 200, "application/json", b'{"input_tokens": 1234, "totalTokens": 1234}'
        if not route.dialect:
            return 404, "application/json", b'{"error": {"message": "there is nothing here"}}'
        request = json.loads(body)
        dialect = DIALECTS[route.dialect]
        checked = {"model": route.model, **request} if route.model else request
        violations = tuple(f"{one.rule} at {one.place}" for one in dialect.wire.check(checked))
        said = self._speak(request)
        if dialect.server is not None and dialect.server.binding(checked) != "none":
            with self._lock:
                said, refusals = self._think(request, said, betas)
            violations += refusals
        label = find_label(request)
        recalls = any(isinstance(one, Call) and one.name in OWN_TOOLS for one in said)
        with self._lock:
            arrived = Arrived(label, route.dialect, body, request, violations, recalls, time.time())
            self.arrived.append(arrived)
        self.before_answer(arrived)
        if violations:
            error = {"type": "invalid_request_error", "message": "; ".join(violations)}
            return 400, "application/json", json.dumps({"type": "error", "error": error}).encode()
        name = path.partition("?")[0].rsplit("/", 1)[1].rpartition(":")[2]
        write, stream = APIS[name]
        size = len(body) // 4
        if request.get("stream") or route.streams:
            events = "".join(add_usage(stream(said, size), request, size))
            return 200, "text/event-stream", events.encode()
        return 200, "application/json", json.dumps(write(said, size)).encode()

    def _think(self, request: dict[str, Any], said: Said, betas: str) -> tuple[Said, tuple[str, ...]]:
        """The answer with thinking that is bound to the request, and what its own thinking breaks."""
        try:
            self.binding.check(request, betas)
        except Refused as refusal:
            return said, (str(refusal),)
        thought = Thought(f"I have {len(read_turns(request))} messages before me.")
        return self.binding.issue(request, [thought, *said]), ()

    def _speak(self, request: dict[str, Any]) -> Said:
        tools = list_tools(request)
        shell = next((name for name in SHELLS if name in tools), "")
        label = find_label(request)
        if label == "prompted":
            return self._answer_prompt(request, tools)
        if label in ("compact", "other") or not shell:
            return [answer_aside(request, label)]
        recent = json.dumps(read_turns(request)[-LAST_TURNS:])
        steps = [int(number) for number in STEP.findall(recent)]
        if label in FIRST_STEPS:
            first = FIRST_STEPS[label]
            return self._go_on(shell, max(steps, default=first), first + 2)
        if not steps:  # a cut has folded them all, but a digest names their commands
            steps = [int(number) for number in COMMAND.findall(json.dumps(request))]
        done = max((step for step in steps if step < SUB_STEPS), default=0)
        recall = self._recall(request, tools, done)
        if recall and f"call_recall_{done}" not in recent:
            return recall
        agent = next((name for name in AGENTS if name in tools), "")
        if agent and done == self._agent_at and AGENT_CALL not in recent:
            task = {"description": "two steps", "prompt": SUB_TASK, "subagent_type": "general-purpose"}
            return [Call(agent, task, AGENT_CALL)]
        return self._go_on(shell, done, self.limit)

    def _answer_prompt(self, request: dict[str, Any], tools: list[str]) -> Said:
        """Answer the last prompt of a client whose user makes the steps."""
        recent = json.dumps(read_turns(request)[-LAST_TURNS:])
        done = max(map(int, PROMPT.findall(recent)), default=0)
        recall = self._recall(request, tools, done)
        if recall and f"call_recall_{done}" not in recent:
            return recall
        if done >= self.limit:
            return [f"{DONE} {done}"]
        return [f"I have read step {done}."]

    def _recall(self, request: dict[str, Any], tools: list[str], done: int) -> Said:
        handles = HANDLE.findall(json.dumps(request))
        if done not in self._recall_at or "recall" not in tools or not handles:
            return []
        return [f"Looking at {done} again.", Call("recall", {"key": handles[0]}, f"call_recall_{done}")]

    def _go_on(self, shell: str, done: int, limit: int) -> Said:
        if done >= limit or len(self.arrived) > MOST_REQUESTS:
            return [f"{DONE} {done}"]
        return [f"Step {done + 1}.", self._call_shell(shell, done + 1)]

    def write_command(self, step: int) -> str:
        """The shell command of a step."""
        return f'seq -f "line-{step}-%06g abcdefghijklmnop" 1 {self._lines}'

    def _call_shell(self, tool: str, step: int) -> Call:
        command = self.write_command(step)
        name = "cmd" if tool == "exec_command" else "command"
        arguments: dict[str, Any] = {name: command}
        if tool in ("Bash", "bash", "run_shell_command"):
            arguments["description"] = f"Step {step}"
        if tool == "shell":
            arguments = {"command": ["bash", "-lc", command]}
        if tool == "run_shell_command":
            arguments["is_background"] = False
        return Call(tool, arguments, f"call_{step}_shell")


def answer_aside(request: dict[str, Any], label: str) -> str:
    """Answer what a client asks for itself: a summary, a title, who speaks next."""
    if label == "compact":
        return "<summary>TASK-AFTER: go on with the steps.</summary>"
    if _wants_json(request):
        return json.dumps(JSON_ANSWER)
    return "Steps of a script"


def find_label(request: dict[str, Any]) -> str:
    """Tell a conversation by its first words of the user and by its tools."""
    turns = read_turns(request)
    opening = json.dumps(turns[:4])
    if "detailed summary" in json.dumps(turns[-3:]):
        return "compact"
    if "TASK-AFTER" in opening:
        return "after"
    if "TASK-SUB" in opening and "TASK-MAIN" not in opening:
        return "sub"
    if PROMPT.search(json.dumps(turns)):
        return "prompted"
    has_shell = any(name in SHELLS for name in list_tools(request))
    if has_shell and any(task in json.dumps(turns) for task in ("TASK-MAIN", "TASK-MORE")):
        return "main"
    return "other"


def read_turns(request: dict[str, Any]) -> list[Any]:
    for name in ("messages", "input", "contents"):
        turns = request.get(name)
        if isinstance(turns, list):
            return turns
    return []


def list_tools(request: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for tool in request.get("tools") or []:
        declarations = tool.get("functionDeclarations") or tool.get("function_declarations") or [tool]
        for declaration in declarations:
            name = declaration.get("name") or (declaration.get("function") or {}).get("name")
            names.append(str(name))
    return names


def _wants_json(request: dict[str, Any]) -> bool:
    text = json.dumps(
        {name: value for name, value in request.items() if name not in ("contents", "messages")}
    )
    return any(sign in text for sign in ("json", "Json", "JSON"))


def _do_nothing(_: Arrived) -> None:
    return


@contextmanager
def serve_upstream(upstream: ScriptedUpstream) -> Iterator[ScriptedUpstream]:
    """Serve the model on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            betas = self.headers.get("anthropic-beta", "")
            self._write(*upstream.answer(self.path, body, betas))

        def do_GET(self) -> None:
            self._write(200, "application/json", b'{"object": "list", "data": [], "models": []}')

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def _write(self, status: int, media_type: str, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("content-type", media_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the gateway was killed
                return

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with serve_http(Handler) as upstream.url:
        yield upstream
