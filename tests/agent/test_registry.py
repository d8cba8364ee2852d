"""Named agents: in a file, in a store, chosen by name; and plans between <thinking> tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.agent import Action, Agent, TurnLimits, load_agents, open_for
from lamina.agent.profiles import split_plans
from lamina.dialects import Tool
from lamina.errors import BadInput
from lamina.settings import Settings
from lamina.stores import MemoryStore
from lamina.testing import ScriptedClient
from tests.sessions.talking import awaited

FILE = """
[reviewer]
about = "reads changes"
persona = "You review changes."
tools = ["read", "ls"]
model = "gpt-5"
thinking = true
limits = {steps = 3}

[coworker]
"""


async def nothing(_: dict[str, object]) -> str:
    return ""


ACTIONS = tuple(Action(tool=Tool(name=name, schema={}), run=nothing) for name in ("ls", "read", "write"))


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "agents.toml"
    path.write_text(text, encoding="utf-8")
    return path


@awaited
async def test_an_agent_of_a_file_has_its_persona_tools_model_and_limits(tmp_path: Path) -> None:
    """000, "Hydration": use the persona from the agents registry, or the chat's own agent config."""
    agents = load_agents(written(tmp_path))
    assert sorted(agents) == ["coworker", "reviewer"]
    client = ScriptedClient(["<thinking>First read, then judge.</thinking>\nIt is sound."])
    agent = agents.make("reviewer", client=client, actions=ACTIONS)
    store = MemoryStore()
    async with open_for(agent, store, "a", settings=Settings()) as session:
        outcome = await agent.run(session, "Is it sound?")
        assert session.setup.model == "gpt-5"
        assert session.setup.agent == {"name": "reviewer"}
    assert (outcome.text, outcome.plans) == ("It is sound.", ("First read, then judge.",))
    request = client.requests[0]
    assert [tool["function"]["name"] for tool in request["tools"]] == ["read", "ls", "recall"]
    system = str([message["content"] for message in request["messages"] if message["role"] == "system"])
    assert "You review changes." in system
    assert "between <thinking> and </thinking>" in system
    assert agent.limits == TurnLimits(steps=3)
    async with open_for(agents.make("coworker", client=client), store, "a", settings=Settings()) as session:
        assert session.setup.agent == {"name": "coworker"}


def test_what_is_wrong_with_a_registry_is_said_with_its_place(tmp_path: Path) -> None:
    agents = load_agents(written(tmp_path))
    client = ScriptedClient([])
    with pytest.raises(BadInput, match=r"no agent 'critic'.*coworker, reviewer"):
        agents["critic"]
    with pytest.raises(BadInput, match="no action is called read"):
        agents.make("reviewer", client=client, actions=ACTIONS[:1])
    with pytest.raises(BadInput, match=r"agents.toml:3.*tone"):
        load_agents(written(tmp_path, '[a]\npersona = "x"\ntone = "dry"\n'))
    with pytest.raises(BadInput, match=r"agents.toml:2.*steps"):
        load_agents(written(tmp_path, "[a]\nlimits = {steps = 0}\n"))
    with pytest.raises(BadInput, match="cannot be read"):
        load_agents(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "said", "plans"),
    [
        ("Plain.", "Plain.", ()),
        ("<thinking>a</thinking>B<thinking> c </thinking>", "B", ("a", "c")),
        ("B <thinking>cut off", "B", ("cut off",)),
    ],
)
def test_plans_are_split_off_an_answer(text: str, said: str, plans: tuple[str, ...]) -> None:
    assert split_plans(text) == (said, plans)


@awaited
async def test_an_agent_with_a_folder_has_the_tools_of_that_folder(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Lamps.")
    agent = Agent(client=ScriptedClient(["Seen."]), workspace=tmp_path, actions=ACTIONS[:1])
    names = [action.tool.name for action in agent.actions]
    assert names[0] == "ls"
    assert sorted(set(names)) == sorted(names)
    assert {"read", "grep", "edit"} <= set(names)
    assert agent.actions[0] is ACTIONS[0]
    async with open_for(agent, MemoryStore(), "a", model="gpt-5", settings=Settings()) as session:
        await agent.run(session, "Look.", attach=["a.md"])
        assert [one.key for one in session.log if one.kind == "file"] == ["a.md"]
