"""What `make clients` counts: how many conversations a client had."""

from __future__ import annotations

from typing import Any

from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, digest_log
from lamina.dialects import DIALECTS
from tests.gateway.growing import messages_request
from tools.clients.measures import count_conversations


def digest(request: dict[str, Any]) -> RequestDigests:
    return digest_log(DIALECTS["anthropic"].wire.parse(request).log, NO_DIGESTS)


def test_forks_belong_to_what_they_came_from_and_titles_do_not() -> None:
    growing = [digest(messages_request(steps)) for steps in range(4)]
    assert count_conversations(growing) == 1
    changed = messages_request(4)
    changed["messages"][4]["content"][0]["content"] = "cleared by the client"
    assert count_conversations([*growing, digest(changed)]) == 1
    title = digest(messages_request(0, system="Give this a title."))
    assert count_conversations([*growing, title]) == 2
    other = digest(messages_request(2, task="Do something else."))
    assert count_conversations([*growing, title, other]) == 3
