"""Tells a conversation what its answer reported: the tokens that the upstream counted in the last request."""

from __future__ import annotations

import msgspec

from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.gateway.calls import OutgoingRequest
from lamina.gateway.conversation_index import ConversationIndex
from lamina.gateway.live_conversations import LiveConversation
from lamina.gateway.saving import ConversationSaver
from lamina.gateway.sizes import CountedRequest

MOST_BYTES = 6
"""Bytes of a request for each token that its upstream reports. A report with more is not believed."""


class AnswerLearner:
    """Records what upstreams report, in the conversations of one gateway process."""

    def __init__(self, index: ConversationIndex, saver: ConversationSaver) -> None:
        self._index = index
        self._saver = saver

    def record_if_free(self, sent: OutgoingRequest, usage: Usage) -> bool:
        """Learn from what the upstream reported. False if another request holds the conversation now."""
        conversation = sent.conversation
        if conversation is None:
            return True
        # Without a task of its own, as most answers are: that is a part of the CPU that a request takes.
        if self._index.lock(conversation.workspace, conversation.family).locked():
            return False
        if _learn_usage(sent, conversation, usage):
            self._saver.save_later(conversation)
        return True

    async def record_answer(self, sent: OutgoingRequest, usage: Usage, *, at_once: bool = False) -> None:
        """Learn from what the upstream reported, as soon as no other request holds the conversation.

        `at_once`: if the next request may be cut, it is in the store when this returns, if the store answers.
        """
        conversation = sent.conversation
        if conversation is None:
            return
        async with self._index.lock(conversation.workspace, conversation.family):
            if not _learn_usage(sent, conversation, usage):
                return
            depends_on_it = at_once and not _is_far_below(conversation)
            if depends_on_it and await self._saver.save_now(conversation):
                return
        self._saver.save_later(conversation)


def _learn_usage(sent: OutgoingRequest, conversation: LiveConversation, usage: Usage) -> bool:
    """Note what was reported, unless a later request has been sent meanwhile. Whether there is news."""
    state = conversation.state
    if usage == NOTHING_REPORTED or _says_the_same(usage, state.usage):
        return False
    if state.requests != sent.number:  # the report is late, and would be taken for that of a longer request
        return False
    conversation.reported = usage
    conversation.measured = _measure_request(sent, conversation, usage)
    conversation.state = msgspec.structs.replace(state, usage=usage)
    return True


def _is_far_below(conversation: LiveConversation) -> bool:
    """Whether the upstream counted so few tokens that the next request is hardly cut."""
    measured = conversation.measured
    trigger = conversation.trigger
    if measured is None or trigger is None or conversation.state.has_ledger:
        return False
    return 2 * measured.tokens <= trigger.tokens


def _measure_request(
    sent: OutgoingRequest, conversation: LiveConversation, usage: Usage
) -> CountedRequest | None:
    """The last request of a conversation with the tokens that the upstream reported for it.

    None if it was not sent as it came, or if the report is too low to be true: some servers report only what
    they did not have in their cache.
    """
    if not sent.is_as_it_came:
        return None
    tokens = usage.input + usage.cleared.tokens
    if tokens * MOST_BYTES < conversation.text_size:
        return None
    if not conversation.turns:  # the request was too large to stay in memory
        return None
    return CountedRequest(tokens=tokens, turns=conversation.turns, head_bytes=conversation.head_bytes)


def _says_the_same(usage: Usage, last: Usage | None) -> bool:
    """Whether a report adds nothing that a later request depends on. The output does not count."""
    if last is None:
        return False
    return (usage.input, usage.cached, usage.cleared) == (last.input, last.cached, last.cleared)
