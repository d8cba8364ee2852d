"""Filters for streams of chunks, each with a piece of the whole answer: Chat Completions, Ollama and Gemini.

`lamina.conversations.recall_streams` says what a filter is for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from lamina.conversations.block_filters import FilterRound
from lamina.conversations.recall_answers import (
    CALL_LISTS,
    change_field,
    drop_recalls,
    end_turn,
    is_recall,
    shows_client_call,
)
from lamina.dialects.gemini import DIALECT as GEMINI
from lamina.dialects.json_values import list_or_empty, read_field
from lamina.dialects.ollama import DIALECT as OLLAMA
from lamina.dialects.port import Dialect


class _ArrivingCall:
    """A call of which pieces arrive. `number` is the one by which the client sees it; None for a recall.

    Until its name has come, nobody can say whose call it is: `held_arguments` are what came of it before.
    """

    def __init__(self, call_id: Any) -> None:
        self.id = call_id
        self.is_named = False
        self.number: int | None = None
        self.held_arguments: list[str] = []


class CompletionFilter(FilterRound):
    """The chunks of OpenAI's Chat Completions: each has a piece of text, or pieces of calls.

    Some servers give every call the same index, or none. So a call that has another id is another call. Some
    give the id and the name only after the first piece of the arguments.
    """

    def __init__(self, own_names: Collection[str]) -> None:
        super().__init__(own_names)
        self._id: Any = None
        self._calls: dict[Any, _ArrivingCall] = {}
        self._call_count = 0
        self._has_recalls = False

    def next_round(self) -> list[Any]:
        self._calls = {}
        self._has_recalls = False
        return super().next_round()

    def _reopen(self, chunk: Any) -> Any:
        choices = list_or_empty(read_field(chunk, "choices"))
        if not choices:  # the chunk that reports the usage
            return None
        if not read_field(read_field(choices[0], "delta"), "content"):
            return None
        shown_choice = change_field(choices[0], "finish_reason", None)
        return change_field(chunk, "choices", [shown_choice])

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        self._id = self._id or read_field(chunk, "id")
        if self._id is not None:
            chunk = change_field(chunk, "id", self._id)
        choices = list_or_empty(read_field(chunk, "choices"))
        if not choices:  # the chunk that reports the usage
            self.closing.append(chunk)
            return []
        whole_delta = read_field(choices[0], "delta")
        delta = self._strip_delta(whole_delta)
        choice = change_field(choices[0], "delta", delta)
        if self._has_recalls:
            choice = end_turn(choice, has_calls=self.shows_call)
        chunk = change_field(chunk, "choices", [choice, *choices[1:]])
        if read_field(choice, "finish_reason"):
            self.closing.append(chunk)
            return []
        if delta is not whole_delta and _is_empty(delta):
            return []
        return [chunk]

    def _strip_delta(self, delta: Any) -> Any:
        """The delta without pieces of recalls. Only the first answer says who speaks."""
        if not self.is_first and read_field(delta, "role"):
            delta = change_field(delta, "role", None)
        calls = list_or_empty(read_field(delta, "tool_calls"))
        if not calls:
            return delta
        shown_calls: list[Any] = []
        for call in calls:
            piece = self._show_piece(call)
            if piece is not None:
                shown_calls.append(piece)
        return change_field(delta, "tool_calls", shown_calls or None)

    def _show_piece(self, piece: Any) -> Any:
        """A piece of a call as the client sees it; None for a recall, and until the call has a name.

        The client counts only the calls that it sees. The piece with the name brings what was held back.
        """
        index = read_field(piece, "index")
        arriving = self._find_arriving(piece, index)
        if not arriving.is_named:
            if not _read_call_name(piece):
                arriving.held_arguments.append(_read_call_arguments(piece))
                return None
            self._name_call(arriving, piece)
            piece = _add_held_pieces(piece, arriving)
        if arriving.number is None:
            return None
        if index is None:
            return piece
        return change_field(piece, "index", arriving.number)

    def _find_arriving(self, piece: Any, index: Any) -> _ArrivingCall:
        """The call that a piece belongs to: the one that arrives at its index, or a new one."""
        call_id = read_field(piece, "id")
        arriving = self._calls.get(index)
        if arriving is None:
            arriving = self._calls[index] = _ArrivingCall(call_id)
        if not arriving.id and not arriving.is_named:
            arriving.id = call_id  # it comes only after the first piece of the arguments
        if call_id and call_id != arriving.id:
            arriving = self._calls[index] = _ArrivingCall(call_id)
        return arriving

    def _name_call(self, arriving: _ArrivingCall, piece: Any) -> None:
        """Decide whose call it is, now that its name has come."""
        arriving.is_named = True
        if is_recall(piece, self.own_names):
            self._has_recalls = True
            return
        arriving.number = self._call_count
        self._call_count += 1
        self.shows_call = True


def _read_function(piece: Any) -> Any:
    """What holds the name of a call: a function, or a tool that takes free text."""
    return read_field(piece, "function") or read_field(piece, "custom")


def _read_call_name(piece: Any) -> str:
    return read_field(_read_function(piece), "name") or ""


def _read_call_arguments(piece: Any) -> str:
    function = _read_function(piece)
    return read_field(function, "arguments") or read_field(function, "input") or ""


def _add_held_pieces(piece: Any, arriving: _ArrivingCall) -> Any:
    """The piece of a call that has its name, with what came before the name."""
    if arriving.id:
        piece = change_field(piece, "id", arriving.id)
    held_arguments = "".join(arriving.held_arguments)
    if not held_arguments:
        return piece
    arguments = held_arguments + _read_call_arguments(piece)
    function = read_field(piece, "function")
    if function:
        return change_field(piece, "function", change_field(function, "arguments", arguments))
    custom = read_field(piece, "custom")
    return change_field(piece, "custom", change_field(custom, "input", arguments))


def _is_empty(delta: Any) -> bool:
    """Whether a delta has nothing for the client."""
    names = ("content", "tool_calls", "refusal", "role", "reasoning_content")
    return not any(read_field(delta, name) for name in names)


class _WholeCallFilter(FilterRound, ABC):
    """Chunks that hold whole calls, as those of Ollama and Gemini do."""

    dialect: Dialect

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        shown_chunk = drop_recalls(chunk, CALL_LISTS[self.dialect.name], self.own_names)
        self.shows_call = self.shows_call or shows_client_call(chunk, self.dialect, self.own_names)
        if self._is_last(chunk):
            self.closing.append(shown_chunk)
            return []
        return [shown_chunk]

    @abstractmethod
    def _is_last(self, chunk: Any) -> bool:
        """Whether the answer ends with this chunk."""


class OllamaFilter(_WholeCallFilter):
    """The chunks of Ollama. The last one says `done`."""

    dialect = OLLAMA

    def _is_last(self, chunk: Any) -> bool:
        return bool(read_field(chunk, "done"))

    def _reopen(self, chunk: Any) -> Any:
        if not read_field(read_field(chunk, "message"), "content"):
            return None
        return change_field(chunk, "done", False)  # noqa: FBT003 - the value of a field


class GeminiFilter(_WholeCallFilter):
    """The chunks of Gemini. In the last one, a candidate says why it stopped."""

    dialect = GEMINI

    def _is_last(self, chunk: Any) -> bool:
        return any(map(_has_stopped, list_or_empty(read_field(chunk, "candidates"))))

    def _reopen(self, chunk: Any) -> Any:
        candidates = list_or_empty(read_field(chunk, "candidates"))
        if not any(map(_has_parts, candidates)):
            return None
        return change_field(chunk, "candidates", list(map(_continue_candidate, candidates)))


_STOP_REASONS = ("finish_reason", "finishReason")
"""Fields in which a candidate says why it stopped: in objects of the SDK, and in JSON."""


def _has_stopped(candidate: Any) -> bool:
    return any(read_field(candidate, name) for name in _STOP_REASONS)


def _has_parts(candidate: Any) -> bool:
    return bool(list_or_empty(read_field(read_field(candidate, "content"), "parts")))


def _continue_candidate(candidate: Any) -> Any:
    """A candidate that does not say why it stopped."""
    for name in _STOP_REASONS:
        if read_field(candidate, name):
            candidate = change_field(candidate, name, None)
    return candidate
