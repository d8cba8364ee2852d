"""Who a client is: which API it speaks, how large its window is, what its conversations hold.

Each trait is drawn from the seed by itself, so one can be taken away (`without`) and the others stay as they
are: that is how an example is made smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

import msgspec

from tests.fuzzing.words import DENSE

Choice = TypeVar("Choice")

DIALECTS = ("anthropic", "openai_chat", "openai_responses", "gemini")

MODELS = {
    "anthropic": (
        "claude-opus-4-8",
        "claude-opus-4-8",
        "claude-opus-4-6",
        "claude-sonnet-4-5",
        "claude-sonnet-5",
        "claude-opus-5",
        "claude-opus-5-5",
        "claude-fable-5-1",
    ),
    "openai_chat": ("gpt-4o", "gpt-4", "gpt-5", "gpt-6.1-sol", "deepseek-chat", "some-local-model"),
    "openai_responses": ("gpt-5", "gpt-5.1-codex", "gpt-6.1-sol", "gpt-4o"),
    "gemini": ("gemini-3-pro", "gemini-3-pro", "gemini-3.5-flash", "gemini-2.5-pro"),
}

OPTIONAL = (
    "system",
    "tools",
    "reminders",
    "thinking",
    "images",
    "documents",
    "markers",
    "dense",
    "imitates",
    "parallel",
    "items",
    "answer_schema",
    "keeps_objects",
    "blocks",
    "reported_usage",
    "planned_markers",
)
"""Traits that can be taken away."""


_TOOLS_FROM = 1500
"""A smaller window is filled by the definitions alone."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The traits of one client.

    `habit` says what most of its turns are. `scripts` are those that its texts are in. `reminders`: system
    messages within the conversation; "equal" ones repeat, "large" ones do not. `call_ids`: calls have ids
    (Gemini may do without). `brief`: messages are so short that nothing has to be cut for long. `items`:
    items of the API's own that lamina has to pass on. `reported_usage`: the provider reports that many times
    what was counted, and the client passes it on.
    """

    dialect: str
    model: str
    window: int
    reserve: int | None
    counter: str
    habit: str
    scripts: tuple[str, ...]
    system: str = ""
    tools: int = 0
    reminders: str = ""
    thinking: bool = False
    images: bool = False
    documents: bool = False
    markers: bool = False
    imitates: bool = False
    parallel: bool = False
    call_ids: bool = True
    items: bool = False
    answer_schema: bool = False
    keeps_objects: bool = False
    blocks: bool = False
    reported_usage: float = 0
    planned_markers: bool = False
    in_config: bool = False
    long: bool = False
    brief: bool = False


def profile_for(seed: int, without: frozenset[str] = frozenset()) -> Profile:
    draw = _Draw(seed, without)
    dialect = draw.one("dialect", DIALECTS)
    window = draw.weighted(
        "window", {500: 1, 1000: 5, 1500: 8, 2000: 10, 3000: 10, 4000: 8, 8000: 2, 30_000: 1}
    )
    scripts: tuple[str, ...] = ("english", "english", "code", "log", "json")
    if draw.happens("dense", 0.3):
        scripts = (*scripts[1:], *draw.sample("dense scripts", DENSE, 3))
    habit = draw.weighted("habit", {"chat": 3, "agent": 6, "mixed": 5, "polls": 2, "says the same": 2})
    return Profile(
        dialect=dialect,
        model=draw.one("model", MODELS[dialect]),
        window=window,
        reserve=draw.one("reserve", (None, window // 8, window // 10, 0)),
        counter=draw.weighted("counter", {"": 8, "chars4": 1, "strict": 1, "estimate": 1, "rfc": 1}),
        habit=habit,
        scripts=scripts,
        system=draw.one("system text", ("string", "blocks")) if draw.happens("system", 0.7) else "",
        tools=draw.one("tool count", (1, 2, 4))
        if draw.happens("tools", 0.6) and window >= _TOOLS_FROM
        else 0,
        reminders=draw.one("reminder", ("equal", "equal", "new", "large"))
        if draw.happens("reminders", 0.4) and dialect != "gemini"
        else "",
        thinking=draw.happens("thinking", 0.35),
        images=draw.happens("images", 0.1),
        documents=draw.happens("documents", 0.1),
        markers=draw.happens("markers", 0.35),
        imitates=draw.happens("imitates", 0.2),
        parallel=draw.happens("parallel", 0.5),
        call_ids=dialect != "gemini" or draw.happens("call ids", 0.3),
        items=dialect == "openai_responses" and draw.happens("items", 0.3),
        answer_schema=draw.happens("answer_schema", 0.08),
        keeps_objects=draw.happens("keeps_objects", 0.4),
        blocks=draw.happens("blocks", 0.3),
        reported_usage=draw.one("usage", (0.9, 1.1, 1.4)) if draw.happens("reported_usage", 0.1) else 0,
        planned_markers=draw.happens("planned_markers", 0.1),
        in_config=draw.happens("in config", 0.4),
        long=draw.happens("long", 0.015),
        brief=draw.happens("brief", 0.2),
    )


class _Draw:
    """Draws each trait from a source of its own."""

    def __init__(self, seed: int, without: frozenset[str]) -> None:
        self.seed = seed
        self.without = without

    def rng(self, trait: str) -> Random:
        return Random(f"profile/{self.seed}/{trait}")  # noqa: S311 - seeded on purpose

    def one(self, trait: str, choices: Sequence[Choice]) -> Choice:
        return self.rng(trait).choice(choices)

    def weighted(self, trait: str, weights: dict[Choice, int]) -> Choice:
        return self.rng(trait).choices(list(weights), list(weights.values()))[0]

    def sample(self, trait: str, choices: Sequence[Choice], count: int) -> list[Choice]:
        return self.rng(trait).sample(choices, count)

    def happens(self, trait: str, share: float) -> bool:
        return trait not in self.without and self.rng(trait).random() < share
