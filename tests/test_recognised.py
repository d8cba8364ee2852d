"""Every door gives the same answer to the question which conversation a request belongs to."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from lamina.conversations.recognise import find_left, recognise
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, digest_log
from lamina.segments import assistant, system, user
from tests.gateway.growing import HEADERS, dump
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.upstream_stub import run_stub

STREAMS = 16
REQUESTS = 12

Message = dict[str, Any]


class Talker:
    """A client that does what real ones do to their histories. `name` keeps streams apart."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self.draw = draw
        self.name = name
        self.branches: list[list[Message]] = [[self.user("Begin.")]]
        self.system = f"{name}: be brief."
        self.moments = 0

    def user(self, text: str) -> Message:
        return {"role": "user", "content": f"{self.name}: {text}"}

    def request(self) -> list[Message]:
        """The messages of the next request."""
        branch = self.draw.choice(self.branches)
        match self.draw.choice(
            ["append"] * 5 + ["edit", "rewind", "fork", "system", "side", "title", "repeat"]
        ):
            case "append":
                self.answer(branch)
            case "edit" if len(branch) > 2:
                branch[self.draw.randrange(0, len(branch), 2)] = self.user(
                    f"Other words {self.draw.random()}."
                )
            case "rewind" if len(branch) > 4:
                del branch[-2:]
                branch[-1] = self.user(f"Again {self.draw.random()}.")
            case "fork" if len(branch) > 2 and len(self.branches) < 3:
                self.branches.append(list(branch))
                self.answer(self.branches[-1])
            case "system":
                self.moments += 1
                self.system = f"{self.name}: it is {self.moments} o'clock."
                self.answer(branch)
            case "side":
                return [self.said(self.system), *branch, self.user("By the way, what is it about?")]
            case "title":
                return [self.said(f"{self.name}: write a title."), *branch[:1]]
            case _:
                pass  # the same request once more
        return [self.said(self.system), *branch]

    def answer(self, branch: list[Message]) -> None:
        branch.append({"role": "assistant", "content": f"{self.name}: answer {self.draw.random()}"})
        branch.append(self.user(f"Go on with {len(branch)}."))

    @staticmethod
    def said(text: str) -> Message:
        return {"role": "system", "content": text}


def make_streams() -> list[list[list[Message]]]:
    talkers = [Talker(f"s{number}", random.Random(number)) for number in range(STREAMS)]  # noqa: S311
    return [[list(talker.request()) for _ in range(REQUESTS)] for talker in talkers]


def group(names: list[Any]) -> list[int]:
    """The number of the conversation of each request, in the order in which conversations appear."""
    order = list(dict.fromkeys(names))
    return [order.index(name) for name in names]


async def through_gateway(streams: list[list[list[Message]]]) -> list[list[int]]:
    groups: list[list[int]] = []
    async with run_stub() as stub, run_gateway(settings_for(stub)) as gateway, open_client() as client:
        address = f"{gateway.url}/v1/chat/completions"
        for stream in streams:
            before = len(gateway.events("answered"))
            for messages in stream:
                data = dump({"model": "gpt-5", "messages": messages})
                async with client.post(address, data=data, headers=HEADERS) as answer:
                    assert answer.status == 200
                    await answer.read()
            events = gateway.events("answered")[before:]
            groups.append(group([event["conversation"] for event in events]))
    return groups


def test_a_gateway_tells_conversations_apart_whatever_clients_do_to_their_histories() -> None:
    groups = asyncio.run(through_gateway(make_streams()))
    assert any(len(set(conversations)) > 3 for conversations in groups)
    assert any(conversations[:4] == [0, 0, 0, 0] for conversations in groups)


def digests_of(*texts: str, head: str = "Be brief.") -> RequestDigests:
    """The digests of a talk. Every second text is an answer."""
    speakers = (user, assistant)
    spoken = [speakers[at % 2](text) for at, text in enumerate(texts)]
    return digest_log((system(head), *spoken), NO_DIGESTS)


def test_another_system_text_continues_where_an_answer_is_shared() -> None:
    known = digests_of("a", "b", "c")
    assert recognise(digests_of("a", "b", "c", "d", "e", head="It is noon."), [("talk", known)]) == (
        "continues",
        "talk",
        3,
    )
    title = digests_of("a", head="Write a title.")
    assert recognise(digests_of("a"), [("title", title)]).relation == "new"


def test_the_longer_of_two_that_share_something_is_nearest() -> None:
    """The short branch is contained in the request, but the long one still has its prefix in a cache."""
    short = digests_of("a", "b", "c")
    long = digests_of("a", "b", "c", "d", "e", "f", "g")
    rewound = digests_of("a", "b", "c", "d", "e", "x", "y")
    assert recognise(rewound, [("long", long), ("short", short)]) == ("forks", "long", 5)


def test_a_run_that_repeats_another_is_one_conversation_of_its_own() -> None:
    """With the same answers, each of its requests has more in common with the first run than with its own."""
    first_run = digests_of("a", "b", "c", "d", "e", "f", "g")
    last_request = digests_of("a", "b", "c")
    repeated = digests_of("a", "b", "c", "d", "e")
    assert recognise(repeated, [("first", first_run), ("second", last_request)]) == ("continues", "second", 3)
    # The first run was used later, so its client has gone back.
    assert recognise(repeated, [("second", last_request), ("first", first_run)]) == ("forks", "first", 5)


def test_the_last_request_of_a_repeated_run_stays_with_it() -> None:
    """It equals the last request of the first run, which asked nothing more; sent again, it stays there."""
    before_last = digests_of("Question.", "Answer 1.", "Go on.")
    last = digests_of("Question.", "Answer 1.", "Go on.", "Answer 2.", "And then?")
    assert recognise(last, [("first", last), ("second", before_last)])[:2] == ("continues", "second")
    assert recognise(last, [("first", last), ("second", last)])[:2] == ("continues", "second")
    assert recognise(last, [("second", before_last), ("first", last)])[:2] == ("continues", "first")


def test_a_conversation_that_only_begins_with_the_same_question_was_not_left() -> None:
    """Two people may ask the same first question under one system text: nothing of the other is deleted."""
    living = digests_of("a", "b", "c")
    other = digests_of("a", "x", "y", "z")
    assert living.first_answer == 1
    assert find_left(living, [("other", other)]) == []
    assert find_left(living, [("edited", digests_of("a", "b", "x", "y"))]) == ["edited"]


def test_one_answer_in_common_is_one_however_many_segments_it_has_or_what_greeted_before() -> None:
    """Under another system text that may be another user: it takes a second answer, or nothing is deleted."""
    spoken = (assistant("Welcome."), user("a"), assistant("Let me see."), assistant("b"))
    living, other, same_user = (
        digest_log((system(head), *spoken, *rest), NO_DIGESTS)
        for head, *rest in (
            ("Be brief.", user("c"), assistant("d"), user("e")),
            ("It is noon.", user("x"), assistant("y"), user("z")),
            ("It is noon.", user("c"), assistant("d"), user("z")),
        )
    )
    assert find_left(living, [("other", other), ("same", same_user)]) == ["same"]
