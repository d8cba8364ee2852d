"""OpenAI Agents SDK: a session over any lamina store, which fits what each call of the model reads.

    session = LaminaSession("support-42", "chats.db", budget=16_000)
    result = await Runner.run(session.equip(agent), prompt, session=session, run_config=session.run_config())

The store has the whole history, item by item, and the ledger beside it. `equip` gives the agent the tool
`recall`. Items of the Responses API are sent as they came unless they were lowered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any

import msgspec
from agents import (
    Agent,
    AgentHooks,
    AgentOutputSchema,
    FunctionTool,
    Handoff,
    Model,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    handoff,
)
from agents.agent_output import AgentOutputSchemaBase
from agents.memory import SessionSettings
from agents.memory.session_settings import resolve_session_limit
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.models.openai_responses import Converter
from agents.run import CallModelData, CallModelInputFilter, ModelInputData

from lamina.adapters._stored_values import decode_stored
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn, add_report
from lamina.core.values import Budget
from lamina.fitting.policy import Policy
from lamina.stores.port import Store, Where
from lamina.stores.store_thread import StoreAddress, StoreThread

__all__ = ["LaminaSession"]


class LaminaSession:
    """A conversation named `session_id` in the store at `address`; see `lamina.stores.store_thread`.

    A `StoreThread` may be given in place of an address, so that many sessions share one. `policy` says
    how requests are fitted, and `budget` replaces that of the policy; without either the window of the
    agent's model counts.
    """

    def __init__(
        self,
        session_id: str,
        address: StoreAddress | StoreThread,
        *,
        key: Any = None,
        workspace: str = "openai-agents",
        policy: Policy | None = None,
        budget: Budget | int | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = None
        self.fitter = ContextFitter(CODEC, policy=policy, budget=budget)
        if isinstance(address, StoreThread):
            self.store = address
        else:
            self.store = StoreThread(address, key=key)
        self.recall_tool = FunctionTool(
            name=RECALL.name,
            description=RECALL.description,
            params_json_schema=RECALL.schema,
            on_invoke_tool=self._recall,
            strict_json_schema=False,
        )
        self._where = Where(workspace, session_id)
        self._last_input: Sequence[Any] | None = None
        self._last_ledger: dict[str, Any] | None = None
        self.filter = self.make_filter(RunConfig())

    def run_config(self, config: RunConfig | None = None, **settings: Any) -> RunConfig:
        """A run's configuration with the filter in it; `settings` are RunConfig's own.

        The SDK does not show its filters the configuration. So the filter knows the one that is made here:
        a model that it names is used in place of the agent's. A filter that it has already comes first.
        """
        config = replace(config or RunConfig(), **settings)
        earlier = config.call_model_input_filter
        if isinstance(earlier, partial) and earlier.func == self._fit:
            config = replace(config, call_model_input_filter=earlier.args[0].call_model_input_filter)
        return replace(config, call_model_input_filter=self.make_filter(config))

    def equip(self, agent: Agent[Any]) -> Agent[Any]:
        """The agent with the recall tool of this session, as the last of its tools.

        The session hears, by the agent's hooks, what each of its calls took.
        """
        hooks = _ReportingHooks(self, agent.hooks or AgentHooks())
        if not self.fitter.recall:
            return agent.clone(hooks=hooks)
        return agent.clone(hooks=hooks, tools=[*agent.tools, self.recall_tool])

    def make_filter(self, config: RunConfig) -> CallModelInputFilter:
        """The `call_model_input_filter` of a run with this configuration."""
        return partial(self._fit, config)

    async def _fit(self, config: RunConfig, data: CallModelData[Any]) -> ModelInputData:
        """Fit one call of the model, and store its ledger."""
        model_data = data.model_data
        if config.call_model_input_filter is not None:
            filtered = config.call_model_input_filter(data)
            model_data = await filtered if isawaitable(filtered) else filtered
        items = model_data.input
        instructions = model_data.instructions
        sent_beside = await _write_beside(data.agent, RunContextWrapper(context=data.context))
        head = {"model": _find_model_name(data.agent, config), "instructions": instructions or ""}
        fitted = self.fitter.fit(
            items,
            head={**head, **sent_beside},
            ledger=await self.store.arun(self._load_ledger),
            conversation=self.session_id,
        )
        self._last_input = items
        self._last_ledger = fitted.ledger
        await self.store.arun(self._append, [], msgspec.json.encode(fitted.ledger))
        return ModelInputData(input=list(fitted.messages), instructions=instructions)

    async def take_report(self, response: ModelResponse) -> None:
        """Store the ledger of the last call with what the model's API reported for it."""
        if self._last_ledger is None:
            return
        ledger = add_report(self._last_ledger, response)
        if ledger != self._last_ledger:
            await self.store.arun(self._append, [], msgspec.json.encode(ledger))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = await self.store.arun(self._load_items)
        limit = resolve_session_limit(limit, self.session_settings)
        if limit is None:
            return items
        return items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[Any]) -> None:
        await self.store.arun(self._append, [msgspec.json.encode(item) for item in items], None)

    async def pop_item(self) -> Any:
        """Remove the last item. The store only grows, so a record says that it is gone."""
        items = await self.store.arun(self._load_items)
        if not items:
            return None
        await self.store.arun(self._append, [_POP], None)
        return items[-1]

    async def clear_session(self) -> None:
        await self.store.arun(self._delete)

    async def _load_items(self, store: Store) -> list[Any]:
        page = await store.read(self._where)
        items: list[Any] = []
        for record in page.records:
            if record.body == _POP:
                items.pop()
            else:
                items.append(decode_stored(record.body))
        return items

    async def _load_ledger(self, store: Store) -> dict[str, Any] | None:
        """The ledger, without reading the items: each call of the model needs it."""
        page = await store.read(self._where, last=0)
        if not page.head.state:
            return None
        ledger: dict[str, Any] = decode_stored(page.head.state)
        return ledger

    async def _append(self, store: Store, bodies: Sequence[bytes], ledger: bytes | None) -> None:
        await store.append(self._where, bodies, state=ledger)

    async def _delete(self, store: Store) -> None:
        await store.delete(self._where)

    async def _recall(self, _: Any, arguments: str) -> str:
        """Answer from the input of the last call: the session may not have its newest items yet."""
        items = self._last_input
        if items is None:
            items = await self.store.arun(self._load_items)
        ledger = await self.store.arun(self._load_ledger)
        return self.fitter.answer(items, arguments, ledger=ledger)


class _ReportingHooks(AgentHooks[Any]):
    """Tells a session what each call of the model took. All events go on to the agent's own hooks."""

    def __init__(self, session: LaminaSession, own_hooks: AgentHooks[Any]) -> None:
        self._session = session
        self._own_hooks = own_hooks

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_") and name != "on_llm_end":
            return getattr(self._own_hooks, name)
        return super().__getattribute__(name)

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: ModelResponse) -> None:
        await self._session.take_report(response)
        await self._own_hooks.on_llm_end(context, agent, response)


_POP = b"null"
"""The record that takes back the item before it. No item of the API is null."""


def _find_model_name(agent: Agent[Any], config: RunConfig) -> str:
    """The name of the model that the SDK will call: that of the run, of the agent, or the default.

    A model without a name is "", and needs a budget.
    """
    model = config.model or agent.model
    if isinstance(model, str):
        return model
    if not isinstance(model, Model):
        model = config.model_provider.get_model(None)
    return str(getattr(model, "model", ""))


async def _write_beside(agent: Agent[Any], context: RunContextWrapper[Any]) -> dict[str, Any]:
    """What the SDK sends beside the input, in its own words: tools, the output's schema, the prompt.

    Handoffs are tools. All of them count, though the SDK leaves out those that are not enabled.
    """
    handoffs: list[Handoff[Any, Any]] = []
    for target in agent.handoffs:
        if isinstance(target, Agent):
            handoffs.append(handoff(target))
        else:
            handoffs.append(target)
    prompt = await agent.get_prompt(context)
    tools = Converter.convert_tools(
        await agent.get_all_tools(context), handoffs, allow_opaque_tool_search_surface=prompt is not None
    )
    beside: dict[str, Any] = {"tools": tools.tools}
    schema = _read_output_schema(agent)
    if schema is not None:
        beside["text"] = Converter.get_response_format(schema)
    if prompt is not None:
        beside["prompt"] = prompt
    return beside


def _read_output_schema(agent: Agent[Any]) -> AgentOutputSchemaBase | None:
    """The schema of a structured answer. None if the agent answers with text."""
    output = agent.output_type
    if output is None or output is str:
        return None
    if not isinstance(output, AgentOutputSchemaBase):
        output = AgentOutputSchema(output)
    if output.is_plain_text():
        return None
    return output


def _write_item(item: Any) -> list[Any]:
    """Write an item as a turn: without the id that the SDK makes up where a provider has none.

    The rules of the API know no such id. The SDK takes it away before it calls the Responses API.
    """
    if isinstance(item, Mapping) and item.get("id") == FAKE_RESPONSES_ID:
        return [{name: value for name, value in item.items() if name != "id"}]
    return [item]


def _read_item(turns: Sequence[Turn], _: Any) -> Any:
    """The turn as an item. What the model said in blocks has an id, made up if need be.

    Without one the SDK cannot write them for models of the Chat Completions API.
    """
    item = turns[0].wire
    if item.get("role") == "assistant" and not isinstance(item.get("content"), str):
        return {"id": FAKE_RESPONSES_ID, **item}
    return item


CODEC = MessageCodec(write=_write_item, read=_read_item, dialect="openai_responses")
