"""The loop: ask the model, run what it calls, give back the results, until it is done or a limit is reached.

    agent = Agent(client=openai_chat(), actions=tools, approve=ask_the_user)
    outcome = await agent.run(session, "Where is the retry policy?")

Plain chat is the loop without actions; one-shot tools look things up before the question (`plan`), and give
the model none to call; answer from search is a session with a search among its sources, and `cites`. Every
step is kept as it happens, in the layer of steps. A turn that is cancelled leaves a log that can go on:
finished results are kept, and the others say that they were not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import anyio
import msgspec

from lamina.agent.actions import Action, Approve, Care, by_name, carried_out, not_run
from lamina.agent.limits import Spent, TurnLimits, check_price
from lamina.agent.model_calls import After, Before, Hooks, ModelAnswer, infer
from lamina.agent.one_shot import Plan, Planned, looked_up
from lamina.agent.outcome import Citation, Ending, Hear, Ran, TurnOutcome, cited, deaf
from lamina.clients.events import Client
from lamina.core.kinds import Kinds, row
from lamina.core.values import Segment, ToolCall
from lamina.core.wording import text_of
from lamina.errors import BadInput
from lamina.sessions import RECALL, Session
from lamina.sessions.attachments import Attachable
from lamina.sessions.setup import speaks
from lamina.summaries import Condense


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """How turns are run. One agent may serve many sessions.

    `plan`: actions run before the question, as it says, and the model calls none. `approve` is asked before
    an action that writes; without it none does. `cites`: the outcome names the segments that an answer cites.
    `repeats`: the question stands again after the result of each search.
    """

    client: Client
    actions: tuple[Action, ...] = ()
    limits: TurnLimits = TurnLimits()
    plan: Plan | None = None
    approve: Approve | None = None
    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()
    cites: bool = False
    repeats: bool = True

    async def run(
        self,
        session: Session,
        prompt: str,
        *,
        attach: Iterable[Attachable | tuple[Attachable, int]] = (),
        hear: Hear = deaf,
        key: str = "",
        condense: Condense | None = None,
    ) -> TurnOutcome:
        """One turn, from the user's words to the model's last; `condense` as in `Session.ask`."""
        self._check(session)
        spent, found, ran = await self._looked_up(prompt, session, hear)
        await session.ask(prompt, attach=[*found, *attach], key=key, condense=condense)
        return await self._goes_on(session, prompt, hear, spent, ran)

    async def go_on(self, session: Session, *, hear: Hear = deaf) -> TurnOutcome:
        """The rest of a turn that was begun already: after a restart, or with words added otherwise."""
        self._check(session)
        if session.calls:
            await _answer_all(session, "the program ended before it was carried out")
        asked = (one for one in reversed(session.log) if one.kind in ("user", "parent_message"))
        question = next((text_of(one.parts) for one in asked), "")
        return await self._goes_on(session, question, hear, Spent(), [])

    async def _goes_on(
        self, session: Session, prompt: str, hear: Hear, spent: Spent, ran: list[ToolCall]
    ) -> TurnOutcome:
        hooks, texts = Hooks(before=self.before, after=self.after), ""
        while not (reached := await self._reached(session, spent)):
            answered = await infer(session, self.client, hooks, hear)
            spent = spent.after(answered.recorded.usage, session.setup.model)
            texts = answered.text or texts
            if not session.calls:
                return self._outcome(session, texts, _ending(answered), spent, ran)
            if not (reached := self.limits.reached(spent)):
                spent += await self._acted(session, prompt, hear, ran)
        if session.calls:
            await _answer_all(session, self.limits.words(reached))
        return self._outcome(session, texts, reached, spent, ran)

    async def _acted(self, session: Session, prompt: str, hear: Hear, ran: list[ToolCall]) -> Spent:
        """Carries out the calls that wait, and gives the session their results; what sub-agents spent."""
        own = () if self.plan else self.actions
        calls = [call for call in session.calls if not (session.setup.recall and call.name == RECALL.name)]
        care, done = self._care(prompt), dict[int, Segment]()
        try:
            results = await carried_out(calls, by_name(own), care, done)
        except BaseException:
            with anyio.CancelScope(shield=True):
                left = "the turn was cancelled; it may have been done in part"
                await session.results(*(done.get(i) or not_run(call, left) for i, call in enumerate(calls)))
            raise
        await session.results(*results)
        ran += calls
        for call, result in zip(calls, results, strict=True):
            await hear(Ran(call=call, result=result))
        return sum((_spent(result) for result in results), Spent())

    async def _looked_up(
        self, prompt: str, session: Session, hear: Hear
    ) -> tuple[Spent, Sequence[Segment], list[ToolCall]]:
        if self.plan is None:
            return Spent(), (), []
        planned = await self.plan(prompt)
        if not isinstance(planned, Planned):
            planned = Planned(calls=tuple(planned))
        calls, spent = list(planned.calls), Spent()
        if planned.usage is not None:
            spent = spent.after(planned.usage, session.setup.model)
        return spent, await looked_up(calls, self.actions, self._care(""), hear), calls

    async def _reached(self, session: Session, spent: Spent) -> Ending | Any:
        return self.limits.reached(spent, ahead=(await session.build()).tokens)

    def _care(self, question: str) -> Care:
        return Care(
            approve=self.approve,
            parallel=self.limits.parallel,
            seconds=self.limits.seconds,
            question=question if self.repeats else "",
        )

    def _outcome(
        self, session: Session, text: str, ending: Ending, spent: Spent, ran: Sequence[ToolCall]
    ) -> TurnOutcome:
        known: tuple[Citation, ...] = ()
        unknown: tuple[str, ...] = ()
        if self.cites:
            known, unknown = cited(text, _context(session.log, session.terms.options.kinds))
        return TurnOutcome(
            text=text, ending=ending, spent=spent, ran=tuple(ran), citations=known, unfounded=unknown
        )

    def _check(self, session: Session) -> None:
        check_price(self.limits, session.setup.model)
        spoken = speaks(session.setup).name
        if self.client.dialect != spoken:
            hint = "open the session with the client's dialect"
            raise BadInput(f"the client speaks {self.client.dialect!r} and the session {spoken!r}", hint=hint)


async def _answer_all(session: Session, why: str) -> None:
    """Answers the calls that wait, so that the log can go on."""
    calls = [call for call in session.calls if not (session.setup.recall and call.name == RECALL.name)]
    await session.results(*(not_run(call, why) for call in calls))


def _ending(answered: ModelAnswer) -> Ending:
    if not answered.recorded.segments:
        return "empty"
    cut_off: dict[str, Ending] = {"length": "length", "refused": "refused", "error": "error"}
    return cut_off.get(answered.reason, "end")


def _spent(result: Segment) -> Spent:
    given = result.meta.get("spent")
    return Spent() if given is None else msgspec.convert(given, Spent)


def _context(log: Sequence[Segment], kinds: Kinds) -> list[Segment]:
    """Everything that was attached, the newest first; `kinds` is the session's own table."""
    return [one for one in reversed(log) if row(kinds, one).attachment]
