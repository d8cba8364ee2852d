"""OpenAI Agents SDK: a session over any lamina store, which fits what each call of the model reads.

    session = LaminaSession("support-42", "chats.db", budget=16_000)
    result = await Runner.run(session.equip(agent), prompt, session=session, run_config=session.run_config())

The store has the whole history, item by item, and the ledger beside it. `equip` gives the agent the tool
`recall`. Items of the Responses API are sent as they came unless they were lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from agents import Agent, FunctionTool, RunConfig
from agents.memory import SessionSettings
from agents.run import CallModelData, ModelInputData

from lamina.adapters.bridge import PASS_THROUGH, RECALL, ContextFitter
from lamina.adapters.store_thread import StoreAddress, StoreThread, decode_stored, open_store_thread
from lamina.core.tokens import Counter
from lamina.core.values import Budget
from lamina.stores.port import Store, Where

_CODEC = msgspec.structs.replace(PASS_THROUGH, dialect="openai_responses")


class LaminaSession:
    """A conversation named `session_id` in the store at `address`; see `lamina.adapters.store_thread`.

    A `StoreThread` may be given in place of an address, so that many sessions share one. `budget` is a
    `Budget` or a window in tokens; without it the window of the agent's model counts.
    """

    def __init__(
        self,
        session_id: str,
        address: StoreAddress | StoreThread,
        *,
        key: Any = None,
        workspace: str = "openai-agents",
        budget: Budget | int | None = None,
        recall: bool = True,
        counter: Counter | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = None
        self.fitter = ContextFitter(_CODEC, budget=budget, recall=recall, counter=counter)
        self.store = open_store_thread(address, key=key)
        self.recall_tool = FunctionTool(
            name=RECALL.name,
            description=RECALL.description,
            params_json_schema=RECALL.schema,
            on_invoke_tool=self._recall,
            strict_json_schema=False,
        )
        self._where = Where(workspace, session_id)
        self._last_input: Sequence[Any] | None = None

    def run_config(self, **settings: Any) -> RunConfig:
        """Return a run's configuration with the filter in it; `settings` are RunConfig's own."""
        return RunConfig(call_model_input_filter=self.filter, **settings)

    def equip(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the agent with the recall tool of this session, as the last of its tools."""
        if not self.fitter.recall:
            return agent
        return agent.clone(tools=[*agent.tools, self.recall_tool])

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Fit one call of the model, and store its ledger. It is a `call_model_input_filter`."""
        items = data.model_data.input
        instructions = data.model_data.instructions
        _, ledger = await self.store.arun(self._load)
        fitted = self.fitter.fit(
            items,
            head={"model": _read_model_name(data.agent), "instructions": instructions or ""},
            tools=_write_tools(data.agent),
            ledger=ledger,
        )
        self._last_input = items
        await self.store.arun(self._append, [], msgspec.json.encode(fitted.ledger))
        return ModelInputData(input=list(fitted.messages), instructions=instructions)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items, _ = await self.store.arun(self._load)
        if limit is None:
            return items
        return items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[Any]) -> None:
        await self.store.arun(self._append, [msgspec.json.encode(item) for item in items], None)

    async def pop_item(self) -> Any:
        """Remove the last item. The store only grows, so a record says that it is gone."""
        items, _ = await self.store.arun(self._load)
        if not items:
            return None
        await self.store.arun(self._append, [_POP], None)
        return items[-1]

    async def clear_session(self) -> None:
        await self.store.arun(self._delete)

    async def _load(self, store: Store) -> tuple[list[Any], dict[str, Any] | None]:
        """Return all items, and the ledger."""
        page = await store.read(self._where)
        items: list[Any] = []
        for record in page.records:
            if record.body == _POP:
                items.pop()
            else:
                items.append(decode_stored(record.body))
        ledger = None
        if page.head.state:
            ledger = decode_stored(page.head.state)
        return items, ledger

    async def _append(self, store: Store, bodies: Sequence[bytes], ledger: bytes | None) -> None:
        await store.append(self._where, bodies, state=ledger)

    async def _delete(self, store: Store) -> None:
        await store.delete(self._where)

    async def _recall(self, _: Any, arguments: str) -> str:
        """Answer from the input of the last call: the session may not have its newest items yet."""
        items, ledger = await self.store.arun(self._load)
        return self.fitter.answer(self._last_input or items, arguments, ledger=ledger)


_POP = b"null"
"""The record that takes back the item before it. No item of the API is null."""


def _read_model_name(agent: Agent[Any]) -> str:
    """Return the name of the agent's model, which may be given by its name or as an object."""
    if isinstance(agent.model, str):
        return agent.model
    return str(getattr(agent.model, "model", ""))


def _write_tools(agent: Agent[Any]) -> list[dict[str, Any]]:
    """Return the agent's functions, to be counted. Tools of MCP servers and of the provider are not here."""
    tools: list[dict[str, Any]] = []
    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            fields = {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.params_json_schema,
            }
            tools.append({"type": "function", **fields})
    return tools
