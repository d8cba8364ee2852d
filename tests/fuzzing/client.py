"""A client in the course of a conversation: what it is, what it keeps, and how it adds to that.

`moves` has what clients do. Here is what all moves are made of: prompts, answers, steps with calls and
results.
"""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

from tests.fuzzing.history import History, Message, Piece, Settings, Tool
from tests.fuzzing.profiles import Profile, profile_for
from tests.fuzzing.words import Words
from tests.fuzzing.writing import write

TOOL_NAMES = ("read_file", "run", "search", "write_file", "fetch", "job_status")
REMINDER = "Reminder: the user has not heard from you in a while; say in one sentence what you are doing."
SAME_PROMPT = "continue"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


class Client:
    """One client. `answering` is the hash of the request that the next words of the model answer, if any."""

    def __init__(self, seed: int, without: frozenset[str] = frozenset()) -> None:
        self.seed = seed
        self.profile: Profile = profile_for(seed, without)
        self.history = History()
        self.answering = ""
        self.idle: float | None = None
        self.reported: int | None = None
        self.marks = self.profile.markers
        self.marked = False
        opening = Words(f"{seed}/opening", self.profile.scripts, imitates=False)
        self.settings = self._settings(opening)

    def _settings(self, words: Words) -> Settings:
        profile = self.profile
        return Settings(
            dialect=profile.dialect,
            model=profile.model,
            window=profile.window,
            reserve=profile.reserve,
            counter=profile.counter,
            system=f"Be careful. {words.text(min(40, profile.window // 30), 'english')}"
            if profile.system
            else "",
            system_in_blocks=profile.system == "blocks",
            tools=[tool_named(name, words) for name in TOOL_NAMES[: profile.tools]],
            answer_schema=answer_schema(words, profile.window) if profile.answer_schema else None,
            output=profile.window // 8,
            keeps_objects=profile.keeps_objects,
            in_config=profile.in_config,
            call_ids=profile.call_ids,
            breakpoints="plan" if profile.planned_markers else "keep",
        )

    def words(self, move: str) -> Words:
        return Words(f"{self.seed}/{move}", self.profile.scripts, imitates=self.profile.imitates)

    def request(self) -> dict[str, Any]:
        """The request as it is now; with markers on its newest messages, if the client sets them."""
        if not self.marked:
            self.mark([""] if not self.marks else ["-", "-"])
        self.marked = False
        return write(self.history.messages, self.settings)

    def mark(self, lifetimes: list[str]) -> None:
        """Cache markers on the newest messages, one each, and nowhere else."""
        self.marked = True
        newest = reversed(self.history.messages)
        wanted = {message.number: lifetime for message, lifetime in zip(newest, lifetimes, strict=False)}
        for message in self.history.messages:
            _mark(message, wanted.get(message.number, ""))

    @property
    def room(self) -> int:
        """About how many tokens of ordinary text there is room for."""
        settings = self.settings
        room = settings.window - (settings.window // 8 if settings.reserve is None else settings.reserve)
        return room // 4 if settings.counter == "strict" else room

    def edited(self) -> None:
        """To be called when messages changed: what the model says next is no answer to what was sent."""
        self.answering = ""


def _mark(message: Message, lifetime: str) -> None:
    before = [piece.marker for piece in message.pieces]
    for piece in message.pieces:
        piece.marker = ""
    markable = message.of("text", "call", "result", "image", "document")
    if markable:
        markable[-1].marker = lifetime
    if before != [piece.marker for piece in message.pieces]:
        message.changed()


def tool_named(name: str, words: Words) -> Tool:
    properties = {
        "path": {"type": "string", "description": words.text(4, "english")},
        "limit": {"type": "integer"},
    }
    return Tool(
        name=name,
        description=f"Calls {name}. {words.text(6, 'english')}",
        schema={"type": "object", "properties": properties, "required": ["path"]},
    )


def answer_schema(words: Words, window: int) -> dict[str, Any]:
    """The schema of a structured answer; a large one in a large window."""
    fields = {f"field_{i}": {"type": "string", "description": words.text(8)} for i in range(window // 250)}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def ask(client: Client, words: Words, tokens: int = 0, text: str = "") -> Message:
    """The user says something."""
    rng, profile = words.rng, client.profile
    if not text and not tokens and profile.habit == "says the same" and rng.random() < 0.7:
        text = SAME_PROMPT
    if not text:
        text = words.text(tokens or prompt_size(client, rng))
    pieces = [Piece(sort="text", text=text)]
    if profile.blocks and rng.random() < 0.2:
        pieces.append(Piece(sort="text", text=words.text(10)))
    if profile.images and rng.random() < 0.3:
        pieces.append(picture())
    if profile.documents and rng.random() < 0.3:
        pieces.append(document(client, words))
    return client.history.add("user", pieces, as_string=not profile.blocks)


def answer(client: Client, words: Words) -> Message:
    """The model answers without calling a tool."""
    tokens = share_of(client, words.rng, (0.02, 0.05, 0.1, 0.25))
    pieces = [*thoughts(client, words), Piece(sort="text", text=words.text(tokens))]
    return _model_says(client, pieces)


def step(client: Client, words: Words, calls: int = 0, *, answered: bool = True) -> Message:
    """The model calls tools, and they answer, unless the client was stopped before."""
    rng, profile = words.rng, client.profile
    count = calls or (rng.choice((1, 2, 3)) if profile.parallel and rng.random() < 0.5 else 1)
    pieces = thoughts(client, words)
    if rng.random() < 0.3:
        pieces.append(Piece(sort="text", text=words.text(8)))
    made = [_call(client, words, first=i == 0) for i in range(count)]
    message = _model_says(client, [*pieces, *made])
    if answered:
        results(client, words, made)
    return message


def poll(client: Client, words: Words) -> Message:
    """The model asks a tool again that still says the same; nothing tells one such step from another."""
    signature = "c2lnbmVk" if client.profile.dialect == "gemini" else ""
    call = Piece(sort="call", id=f"call_{words.canary()}", name="job_status", text="{}", signature=signature)
    message = _model_says(client, [call])
    text = "pending: 40 % of the build is done. " * max(share_of(client, words.rng, (0.07,)) // 9, 1)
    client.history.add("tool", [Piece(sort="result", id=call.id, name=call.name, text=text)])
    return message


def results(client: Client, words: Words, calls: list[Piece]) -> Message:
    rng = words.rng
    made = []
    for call in calls:
        tokens = share_of(client, rng, (0.02, 0.05, 0.1, 0.1, 0.2, 0.4, 1.5))
        made.append(
            Piece(
                sort="result",
                id=call.id,
                name=call.name,
                text=words.text(tokens),
                failed=rng.random() < 0.1,
                data=PIXEL if client.profile.images and rng.random() < 0.1 else None,
            )
        )
    if rng.random() < 0.1:
        made.append(Piece(sort="text", text=words.text(10)))
    return client.history.add("tool", made, apart=rng.random() < 0.15)


def thoughts(client: Client, words: Words) -> list[Piece]:
    """The model's reasoning, if it shows any: signed, sometimes unreadable."""
    profile, rng = client.profile, words.rng
    if not profile.thinking or rng.random() < 0.3:
        return []
    signature = base64.b64encode(words.canary().encode() * 3).decode()
    if profile.dialect in ("anthropic", "openai_responses") and rng.random() < 0.15:
        data = base64.b64encode(words.text(40, "english").encode()).decode()
        return [Piece(sort="redacted", data=data)]
    return [Piece(sort="thinking", text=words.text(12, "english"), signature=signature)]


def picture() -> Piece:
    return Piece(sort="image", data=PIXEL)


def document(client: Client, words: Words) -> Piece:
    text = words.text(share_of(client, words.rng, (0.05, 0.2)))
    data = base64.b64encode(b"%PDF-1.4 " + text.encode()).decode()
    if client.profile.dialect != "gemini":
        data = f"data:application/pdf;base64,{data}"
    return Piece(sort="document", text=text, data=data, name=f"{words.canary()}.pdf")


def prompt_size(client: Client, rng: Random) -> int:
    small = rng.random() < 0.85
    return rng.randrange(8, 30) if small else share_of(client, rng, (0.1, 0.2))


def share_of(client: Client, rng: Random, shares: tuple[float, ...]) -> int:
    """A size in tokens: one of these shares of the room, or of a sixth of it where all messages are brief."""
    room = client.room // 6 if client.profile.brief else client.room
    return max(int(room * rng.choice(shares)), 6)


def _model_says(client: Client, pieces: list[Piece]) -> Message:
    message = client.history.add(
        "assistant", pieces, as_string=not client.profile.blocks, bound_to=client.answering
    )
    client.answering = ""
    return message


def _call(client: Client, words: Words, *, first: bool) -> Piece:
    rng = words.rng
    arguments: dict[str, Any] = {"path": f"src/{words.canary()}.py"}
    if rng.random() < 0.15:
        arguments["text"] = words.text(share_of(client, rng, (0.05, 0.2)))
    if rng.random() < 0.2:
        arguments["limit"] = rng.randrange(500)
    signed = first and client.profile.dialect == "gemini"
    return Piece(
        sort="call",
        id=f"call_{words.canary()}",
        name=rng.choice(TOOL_NAMES[: client.profile.tools or 4]),
        text=json.dumps(arguments, ensure_ascii=False),
        signature=base64.b64encode(words.canary().encode()).decode() if signed else "",
    )
