"""The loop: ask the model, run what it calls, give back the results, until it is done or a limit is reached.

    agent = Agent(client=openai_chat(), actions=tools, approve=ask_the_user)
    outcome = await agent.run(session, "Where is the retry policy?")

Plain chat is the loop without actions. With one-shot tools (`plan`), things are looked up before the
question, and the model has no tools to call. The plan is made by a call of its own, which is not recorded.
To answer from search, give the session a search among its sources, and set `cites`. Every step is recorded as
it happens, in the layer of steps. A turn that is cancelled leaves a log that can go on: finished results are
recorded, and the others say that they were not run.

`AgentTurn` is the only place where a session and a client meet. If the API refuses a request as too long, it
is cut deeper and sent once more. If it does not know the switch for bound thinking, the request is sent once
more without it. If the caller goes away, the text that had arrived is recorded, with a note that it was
interrupted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from os import PathLike
from typing import Any

import anyio
import msgspec

from lamina.agent.actions import Action, Approve, RunOptions, index_actions, refuse_call, run_calls
from lamina.agent.outcome import (
    Citation,
    Ending,
    Listener,
    SteadyListener,
    ToolRunEvent,
    TurnCost,
    TurnLimits,
    TurnOutcome,
    check_price,
    find_citations,
    ignore_event,
)
from lamina.agent.profiles import PLANNING, AgentProfile, split_plans
from lamina.agent.ready_actions import workspace_actions
from lamina.clients.events import Client, Event, Reason, StopEvent, TextEvent
from lamina.clients.failures import CallFailed, RequestRefused
from lamina.context.tools import workspace_tools
from lamina.conversations.remedies import (
    SWITCH_REFUSED,
    THINKING_REFUSED,
    limit_to_floor,
    limit_to_report,
    read_refusal,
)
from lamina.core.build import build
from lamina.core.kinds import kind_of
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects import DIALECTS
from lamina.dialects.overflow import Overflow
from lamina.dialects.port import PlainHead
from lamina.dialects.sending import render_request
from lamina.dialects.usage import Usage
from lamina.errors import BadInput, BudgetExceeded
from lamina.models.facts import model
from lamina.segments import excerpt, system, user
from lamina.sessions import Recorded, Session
from lamina.sessions.answers import absorb_answer
from lamina.sessions.attachments import Attachable
from lamina.sessions.setup import dialect_for
from lamina.summaries import Condense
from lamina.workspace.workspace import Workspace

INTERRUPTED = "[interrupted]"
"""What is written after the text of an answer that did not come to its end."""

Before = Callable[[Session, dict[str, Any]], Awaitable[dict[str, Any] | None] | dict[str, Any] | None]
"""Sees each request before it is sent, and may return another one to send in its place. It may be async."""

After = Callable[[Session, Recorded], Awaitable[None] | None]
"""Sees each answer after it was recorded. It may be async."""


class PlannedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a plan, and what making it cost."""

    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None


Plan = Callable[[str], Awaitable[Sequence[ToolCall] | PlannedCalls]]
"""Says which tools must run before a prompt can be answered."""


class ModelPlan:
    """A plan that a model makes. It keeps no state from one plan to the next, so turns may share it."""

    def __init__(
        self, client: Client, model: str, actions: Sequence[Action], *, instructions: str = PLANNING
    ) -> None:
        self._client = client
        self._model = model
        self._actions = tuple(actions)
        self._instructions = instructions

    async def __call__(self, prompt: str) -> PlannedCalls:
        dialect = DIALECTS[self._client.dialect]
        tools = tuple(action.tool for action in self._actions)
        head = dialect.head.write(PlainHead(model=self._model, tools=tools)).head
        request = render_request(build([system(self._instructions), user(prompt)], head=head), dialect)
        async with self._client.send(request) as reply:
            absorbed = await absorb_answer(reply, dialect)
        calls: list[ToolCall] = []
        for segment in absorbed.segments:
            for part in segment.parts:
                if isinstance(part, ToolCall):
                    call_id = part.id or f"plan-{len(calls)}"  # Ollama's own API has no ids
                    calls.append(ToolCall(id=call_id, name=part.name, arguments=part.arguments))
        return PlannedCalls(calls=tuple(calls), usage=absorbed.usage)


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """How turns are run. One agent may serve many sessions.

    `plan`: it says which actions run before the question, and the model calls none. `approve` is asked before
    an action that writes; without it none runs. `cites`: the outcome names the segments that an answer cites.
    With a folder as `workspace` the tools of that folder are added to the actions. `profile` is the agent in
    a registry.
    """

    client: Client
    actions: tuple[Action, ...] = ()
    limits: TurnLimits = TurnLimits()
    plan: Plan | None = None
    approve: Approve | None = None
    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()
    cites: bool = False
    workspace: str | PathLike[str] | None = None
    profile: AgentProfile = AgentProfile()

    def __post_init__(self) -> None:
        if self.workspace is None:
            return
        names = {action.tool.name for action in self.actions}
        offered = workspace_actions(workspace_tools(Workspace(self.workspace)))
        added = tuple(action for action in offered if action.tool.name not in names)
        msgspec.structs.force_setattr(self, "actions", self.actions + added)

    async def run(
        self,
        session: Session,
        prompt: str,
        *,
        attach: Iterable[Attachable | tuple[Attachable, int]] = (),
        hear: Listener = ignore_event,
        key: str = "",
        condense: Condense | None = None,
    ) -> TurnOutcome:
        """Run one turn, from the user's words to the model's last; `condense` as in `Session.ask`.

        If `hear` raises, the answer is read to its end and recorded first. Then the error is raised, and
        `go_on` runs the rest of the turn.
        """
        turn = AgentTurn(self, session, hear, prompt)
        context: Sequence[Segment] = ()
        if self.plan is not None:
            context = await turn.run_plan(self.plan)
        await session.ask(prompt, attach=[*context, *attach], key=key, condense=condense)
        return await turn.run_steps()

    async def go_on(self, session: Session, *, hear: Listener = ignore_event) -> TurnOutcome:
        """Run the rest of a turn that was begun already: after a restart, or with words added otherwise.

        If the turn is over, nothing is sent, and the outcome has the text of its last answer.
        """
        turn = AgentTurn(self, session, hear, _last_text(session.log, "user", "parent_message"))
        if not session.pending and not session.calls:
            turn.text = _last_text(session.log, "assistant")
            return turn.make_outcome("end")
        if session.calls:
            await turn.refuse_calls("the program ended before it was carried out")
        return await turn.run_steps()


class AgentTurn:
    """One turn of an agent under way: what it cost, the calls that were run, and the model's last text.

    `question` is what the user asked.
    """

    def __init__(self, agent: Agent, session: Session, hear: Listener, question: str) -> None:
        check_price(agent.limits, session.setup.model)
        dialect = dialect_for(session.setup).name
        if agent.client.dialect != dialect:
            hint = "open the session with the client's dialect"
            raise BadInput(
                f"the client speaks {agent.client.dialect!r} and the session {dialect!r}", hint=hint
            )
        self._agent = agent
        self._session = session
        self._hear = SteadyListener(hear)
        self._options = RunOptions(
            approve=agent.approve,
            parallel=agent.limits.parallel,
            seconds=agent.limits.seconds,
            question=question,
        )
        self.text = ""
        self._spent = TurnCost()
        self._ran: list[ToolCall] = []

    async def run_steps(self) -> TurnOutcome:
        """Call the model and run its calls, until it makes none or a limit is reached."""
        limits = self._agent.limits
        while True:
            self._hear.raise_error()
            # The next request counts too: one that would pass the limit is not sent, and costs nothing.
            ahead = (await self._session.build()).tokens
            limit = limits.reached(self._spent, ahead=ahead)
            if limit:
                break
            answer, recorded = await self._call_model()
            self._hear.raise_error()
            self._spent = self._spent.after(recorded.usage, self._session.setup.model)
            self.text = "".join(answer.text) or self.text
            if not self._session.calls:
                return self.make_outcome(_ending_of(answer, recorded))
            limit = limits.reached(self._spent)
            if limit:
                break
            await self._run_open_calls()
        if self._session.calls:
            await self.refuse_calls(limits.words(limit))
        return self.make_outcome(limit)

    async def run_plan(self, plan: Plan) -> Sequence[Segment]:
        """Make the plan of a turn and run it. Returns what it brought, as context for the question."""
        planned = await plan(self._options.question)
        if not isinstance(planned, PlannedCalls):
            planned = PlannedCalls(calls=tuple(planned))
        if planned.usage is not None:
            self._spent = self._spent.after(planned.usage, self._session.setup.model)
        options = msgspec.structs.replace(self._options, question="")
        results = await run_calls(planned.calls, index_actions(self._agent.actions), options, {})
        await self._note_calls(planned.calls, results)
        return [_make_context(call, result) for call, result in zip(planned.calls, results, strict=True)]

    async def _run_open_calls(self) -> None:
        """Run the calls that wait, and add their results to the session."""
        actions: Sequence[Action] = ()
        if self._agent.plan is None:
            actions = [action.bound_to(self._session) for action in self._agent.actions]
        calls = self._list_open_calls()
        finished: dict[int, Segment] = {}
        try:
            results = await run_calls(calls, index_actions(actions), self._options, finished)
        except BaseException:
            # What was done is not lost, and the model can read which calls were not run.
            with anyio.CancelScope(shield=True):
                await self._session.results(*_complete_results(calls, finished))
            raise
        await self._session.results(*results)
        await self._note_calls(calls, results)
        self._spent += sum((_read_spent(result) for result in results), TurnCost())

    async def _note_calls(self, calls: Sequence[ToolCall], results: Sequence[Segment]) -> None:
        self._ran += calls
        for call, result in zip(calls, results, strict=True):
            await self._hear(ToolRunEvent(call=call, result=result))

    def _list_open_calls(self) -> list[ToolCall]:
        """The calls that wait for a result, except for those that the session answers itself."""
        return [call for call in self._session.calls if not self._session.is_own_call(call)]

    async def refuse_calls(self, reason: str) -> None:
        """Answer the calls that wait, so that the log can go on."""
        await self._session.results(*(refuse_call(call, reason) for call in self._list_open_calls()))

    def make_outcome(self, ending: Ending | Any) -> TurnOutcome:
        """The outcome of the turn, with its citations if the agent `cites`."""
        text = self.text
        plans: tuple[str, ...] = ()
        if self._agent.profile.thinking:
            text, plans = split_plans(text)
        citations: tuple[Citation, ...] = ()
        unfounded: tuple[str, ...] = ()
        if self._agent.cites:
            kinds = self._session.terms.options.kinds
            newest_first = reversed(self._session.log)
            attachments = [segment for segment in newest_first if kind_of(kinds, segment).attachment]
            citations, unfounded = find_citations(text, attachments)
        return TurnOutcome(
            text=text,
            plans=plans,
            ending=ending,
            spent=self._spent,
            ran=tuple(self._ran),
            citations=citations,
            unfounded=unfounded,
        )

    async def _call_model(self) -> tuple[_Reading, Recorded]:
        """Ask the model for the next step, and record its answer."""
        session = self._session
        try:
            reading = await self._send_request()
        except RequestRefused as error:
            # Text that had arrived before the refusal was recorded: then it is not the model's turn any more.
            if not session.pending or not await _mend_request(session, error):
                raise
            reading = await self._send_request()
        recorded = Recorded()
        if reading.has_content or reading.reason != "error":
            recorded = await session.record(reading.raw)
        for hook in self._agent.after:
            noticed = hook(session, recorded)
            if isawaitable(noticed):
                await noticed
        return reading, recorded

    async def _send_request(self) -> _Reading:
        """Send the session's next request and read the reply. What arrived before a failure is recorded."""
        session = self._session
        request = await session.request()
        for hook in self._agent.before:
            other_request = hook(session, request)
            if isawaitable(other_request):
                other_request = await other_request
            if other_request is not None:
                request = _check_request(other_request, session)
        reply = self._agent.client.send(request)
        reading = _Reading(raw=reply.raw)
        try:
            async with reply:
                async for event in reply:
                    reading.take(event)
                    await self._hear(event)
        except (CallFailed, anyio.get_cancelled_exc_class()):
            # Its calls are dropped, since nobody will answer them.
            text = "".join(reading.text).strip(WHITE_SPACE)
            if text:
                with anyio.CancelScope(shield=True):
                    await session.record(f"{text}\n{INTERRUPTED}")
            raise
        return reading


def _make_context(call: ToolCall, result: Segment) -> Segment:
    """The result of a planned call as an excerpt, which names the tool and its arguments as the source."""
    part = result.parts[0]
    content = result.parts
    if isinstance(part, ToolResult):
        content = part.content
    return excerpt(text_of(content), source=call.name, place=call.arguments, recover=None)


def _complete_results(calls: Sequence[ToolCall], finished: dict[int, Segment]) -> list[Segment]:
    """The finished results of a cancelled turn, and for the other calls that they were not run."""
    results: list[Segment] = []
    for index, call in enumerate(calls):
        if index in finished:
            results.append(finished[index])
        else:
            results.append(refuse_call(call, "the turn was cancelled; it may have been done in part"))
    return results


def _last_text(log: Sequence[Segment], *kinds: str) -> str:
    """The text of the last segment of these kinds; "" if there is none."""
    for segment in reversed(log):
        if segment.kind in kinds:
            return text_of(segment.parts)
    return ""


def _ending_of(reading: _Reading, recorded: Recorded) -> Ending:
    """Why a turn ended whose last answer calls no tools."""
    if not recorded.segments:
        return "empty"
    match reading.reason:
        case "length" | "refused" | "error":
            return reading.reason
    return "end"


def _read_spent(result: Segment) -> TurnCost:
    """What a sub-agent spent for this result."""
    spent = result.meta.get("spent")
    if spent is None:
        return TurnCost()
    return msgspec.convert(spent, TurnCost)


class _Reading(msgspec.Struct, kw_only=True):
    """What has been read of a reply so far. `has_content`: something came besides its end."""

    raw: list[Any]
    text: list[str] = []
    reason: Reason = "error"
    has_content: bool = False

    def take(self, event: Event) -> None:
        if isinstance(event, StopEvent):
            self.reason = event.reason
        else:
            self.has_content = True
        if isinstance(event, TextEvent):
            self.text.append(event.text)


def _check_request(request: object, session: Session) -> dict[str, Any]:
    """What a hook returned to be sent. Raises BadInput if that is no request of the session's API."""
    if not isinstance(request, dict):
        hint = "return the request to send, or None to leave it as it is"
        raise BadInput(f"{type(request).__name__} is no request", place="before", hint=hint)
    dialect_for(session.setup).wire.parse(request)
    return request


async def _mend_request(session: Session, error: RequestRefused) -> bool:
    """Change the session's next request so that the API may take it. Returns False if that is not possible.

    Raises BudgetExceeded if the API does not know the switch for bound thinking, and nothing fits without it.
    """
    refusal = read_refusal(error.status, error.said)
    if refusal is None:
        return False
    if refusal.why == SWITCH_REFUSED:
        session.forgo_switch()
        return True
    if refusal.why == THINKING_REFUSED:
        return session.drop_thinking()
    return await _shrink_request(session, refusal.overflow)


async def _shrink_request(session: Session, reported: Overflow) -> bool:
    """Make the session's next request smaller, by as much as the API asked for.

    The smaller budget stays while the session is open. Returns False if it cannot be made smaller.
    """
    counted = (await session.build()).tokens
    usual_budget = session.budget or model(session.setup.model).budget
    try:
        session.limit(limit_to_report(usual_budget, reported, counted))
        await session.build()
    except BudgetExceeded as error:
        smallest = limit_to_floor(usual_budget, error.floor, counted)
        session.limit(smallest or usual_budget)
        if smallest is None:
            return False
        await session.build()
    return True
