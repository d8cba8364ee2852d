"""What the entries of one build weigh, and where they stand in the stream.

Every token of a request belongs to exactly one line of the account: an entry, the tool definitions, the
format of the answer, other parameters, the request's own framing, or the margin that scaling adds. So the
parts always sum to the total.

Every parameter counts that is not listed as unread: a field that nobody here has heard of may be one that a
server puts before the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.core.entries import begins_with, is_empty
from lamina.core.hashing import digest, extend_chain
from lamina.core.repair import find_side
from lamina.core.text.characters import lower_ascii, split_words
from lamina.core.tokens import (
    Basis,
    Counter,
    calibration_for,
    formats_cost,
    others_cost,
    part_cost,
    scale_tokens,
    tools_cost,
)
from lamina.core.values import (
    Calibration,
    Digest,
    Entry,
    Form,
    Ref,
    RequestHead,
    Role,
    Segment,
    Text,
    ToolResult,
)

ANSWER_FORMATS = frozenset(
    """response_format response_schema response_json_schema format json_schema grammar guided_json
    guided_grammar guided_regex guided_choice guided_decoding structured_outputs output_format""".split()
)
"""Parameters that say which form the answer must have, in the words of one provider or another."""

_FORMAT_HOLDERS = ("output_config", "text")
"""Parameters that have the format among other things, under the name `format`."""

_PARAMETER_HOLDERS = frozenset(
    ("config", "generation_config", "extra_body", "additional_model_request_fields")
)
"""Parameters that hold parameters."""

_REASONS = {
    "it says how tokens are chosen": """temperature top_p top_k min_p typical_p seed n best_of candidate_count
        logit_bias logprobs top_logprobs response_logprobs presence_penalty frequency_penalty
        repetition_penalty repeat_penalty options inference_config""",
    "it says when the answer ends": """max_tokens max_completion_tokens max_output_tokens max_new_tokens
        max_tool_calls stop stop_sequences ignore_eos truncate truncation shift""",
    "it says how the request is sent, kept or paid for": """model stream stream_options metadata user store
        labels safety_identifier service_tier background include parallel_tool_calls keep_alive betas speed
        anthropic_beta anthropic_version inference_geo diagnostics user_profile_id workspace_id extra_headers
        extra_query timeout http_options should_return_http_response echo cache_salt client_metadata
        automatic_function_calling model_selection_config routing_config model_id request_metadata
        performance_config additional_model_response_field_paths""",
    "it marks or names a cache": """cache_control prompt_cache_key prompt_cache_options prompt_cache_retention
        cache_prompt id_slot""",
    "it filters what was said": "safety_settings model_armor_config moderation guardrail_config",
    "it is one of a few words, or a number": """thinking think thinking_config thinking_budget reasoning
        reasoning_effort effort verbosity modalities response_modalities response_mime_type media_resolution
        audio speech_config task_budget""",
    "it names what only the server has, and can count": """previous_response_id conversation cached_content
        container mcp_servers thread""",
}

UNREAD_PARAMETERS: Mapping[str, str] = {
    name: reason for reason, names in _REASONS.items() for name in split_words(names)
}
"""Parameters that no model reads, in snake case, each with the reason."""

_CAPITAL = re.compile(r"[A-Z]")
_DEEPEST = 200
_DUMP_AS_JSON = {"mode": "json", "exclude_none": True}


class TokenAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tokens of a request are, and which counter counted them.

    `answer` is the format that the answer must have. `parameters` are the other parameters that the model
    reads. `margin` is what the counter's scale and the calibration add.
    """

    entries: int
    tools: int
    request: int
    margin: int
    basis: Basis
    counter: str = ""
    answer: int = 0
    parameters: int = 0

    @property
    def exact(self) -> bool:
        """Whether the model's own tokenizer counted this request."""
        return self.basis == "exact"

    @property
    def head(self) -> int:
        """What stands before the messages: tools, the format of the answer, parameters, the framing."""
        return self.tools + self.answer + self.parameters + self.request

    @property
    def uncalibrated(self) -> int:
        """All tokens of the request as they were counted, before anything scales them."""
        return self.entries + self.head

    @property
    def total(self) -> int:
        """All tokens of the request, by the counter in use."""
        return self.uncalibrated + self.margin


class _BesideParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider's message has for the model besides the parts of an entry."""

    tokens: int
    digest: Digest


class Scale(msgspec.Struct, kw_only=True):
    """Weighs entries. `opening` is the cost of a message that will stand before them.

    `counts` and `besides` remember what was weighed, and change no result. `counts` has the tokens of parts,
    by the digest of what is sent; `besides` has what is sent beside the parts, by ref.
    """

    counter: Counter
    calibration: Calibration | None = None
    tools: int = 0
    answer: int = 0
    parameters: int = 0
    opening: int = 0
    counts: dict[Digest, int] = {}
    besides: dict[Ref, _BesideParts] = {}

    def body(self, entry: Entry) -> int:
        """The parts of an entry and what is sent beside them, without the framing of its message.

        Equal parts are counted once, in this build and, with a memo, in all builds of a conversation. What
        only a program reads is in no prompt, so it takes no tokens.
        """
        if entry.segment.unread:
            return 0
        tokens = self.counts.get(entry.sent)
        if tokens is None:
            tokens = sum(part_cost(part, self.counter) for part in entry.parts)
            self.counts[entry.sent] = tokens
        if entry.segment.beside:
            tokens += self._weigh_beside(entry).tokens
        return tokens

    def gain(self, entry: Entry, lowered: Entry) -> int:
        """The tokens that are freed if `lowered` is sent in the place of an entry."""
        if not lowered.parts:
            return self.body(entry)
        return self.body(entry) - self.body(lowered)

    def sent(self, entry: Entry) -> Digest:
        """The digest of what is sent of an entry and beside its parts: its link in the chain.

        Most entries have nothing beside their parts, and then it is the digest of the parts alone.
        """
        uncounted = entry.segment.uncounted
        if uncounted:
            return digest((entry.sent, self._weigh_beside(entry).digest, uncounted))
        if not entry.segment.beside:
            return entry.sent
        return digest((entry.sent, self._weigh_beside(entry).digest))

    def _weigh_beside(self, entry: Entry) -> _BesideParts:
        """Weigh what is sent beside an entry, once in a build: there, a ref names one segment."""
        beside = self.besides.get(entry.ref)
        if beside is None:
            parts = entry.segment.beside
            tokens = sum(part_cost(part, self.counter) for part in parts)
            beside = _BesideParts(tokens=tokens, digest=digest(parts))
            self.besides[entry.ref] = beside
        return beside

    def head_rows(self) -> list[tuple[str, int]]:
        """What makes up the head, for an error that names what does not fit.

        Rows of no tokens are left out.
        """
        rows = (("tools", self.tools), ("answer format", self.answer), ("parameters", self.parameters))
        return [(name, tokens) for name, tokens in rows if tokens]

    def account(self, entries: int) -> TokenAccount:
        """The account of a request whose entries have this many tokens."""
        request = self.counter.framing.request + self.opening
        raw = entries + request
        margin = scale_tokens(raw, self.counter, self.calibration) - raw
        basis: Basis = "estimated"
        if self.calibration is None:
            basis = self.counter.basis
        return TokenAccount(
            entries=entries,
            tools=self.tools,
            request=request,
            margin=margin,
            basis=basis,
            counter=self.counter.identity,
            answer=self.answer,
            parameters=self.parameters,
        )

    def total(self, entries: int) -> int:
        """The tokens of a request whose entries have this many tokens."""
        return self.account(entries).total


def make_scale(
    counter: Counter,
    head: RequestHead,
    calibration: Calibration | None,
    counts: dict[Digest, int],
    *,
    opening: str = "",
) -> Scale:
    """The scale of one build. A calibration of another counter is not applied.

    `opening` is what will stand before the first message, in a message of its own.
    """
    parameters = find_read_parameters(head.parameters)
    opening_tokens = 0
    if opening:
        opening_tokens = counter.framing.message + counter.count(opening)
    return Scale(
        counter=counter,
        calibration=calibration_for(counter, calibration),
        tools=tools_cost(head.tools, counter),
        answer=formats_cost(parameters.formats, counter),
        parameters=others_cost(parameters.others, counter),
        opening=opening_tokens,
        counts=counts,
    )


def begins_with_assistant(log: Iterable[Segment]) -> bool:
    """Whether the assistant speaks first. Blank messages and results without a call are not sent.

    Some wire formats must begin with the user, and put a line of their own before such a log.
    """
    for segment in log:
        if segment.role is Role.SYSTEM or is_empty(segment.parts):
            continue
        if begins_with(segment.parts, ToolResult):
            continue
        return segment.role is Role.ASSISTANT
    return False


def weigh_entries(
    entries: Iterable[Entry], scale: Scale, *, prefix: Digest, last_sent: Entry | None = None
) -> list[Entry]:
    """Entries with their message boundaries, tokens and prefix hash, continuing a stream at `prefix`.

    `last_sent` is the last entry that is sent before these.
    """
    result = _set_openings(list(entries), last_sent)
    framing = scale.counter.framing
    lone: list[bool] = []
    if framing.part:
        lone = _find_lone_texts(result)
    for at, entry in enumerate(result):
        if entry.form is Form.OMITTED:
            if entry.prefix != prefix or entry.tokens:
                result[at] = msgspec.structs.replace(entry, prefix=prefix, tokens=0)
            continue
        prefix = extend_chain(prefix, scale.sent(entry), opens=entry.opens)
        tokens = scale.body(entry)
        if entry.opens:
            tokens += framing.message
        if framing.part and not lone[at] and not entry.segment.unread:
            tokens += framing.part * len(entry.parts)
        # Most entries of a growing log weigh what they weighed, and stay the same objects.
        if entry.prefix != prefix or entry.tokens != tokens:
            result[at] = msgspec.structs.replace(entry, prefix=prefix, tokens=tokens)
    return result


def _set_openings(entries: list[Entry], last_sent: Entry | None) -> list[Entry]:
    """Say of each entry whether it opens a message, after some entries were left out.

    An omitted entry that opened a message hands that on to the next entry of its side. So leaving out the
    first block of a message never joins the rest to the message before.
    """
    must_open = False
    sent_side = ""
    if last_sent is not None:
        sent_side = find_side(last_sent.role)
    logged_side = sent_side
    for at, entry in enumerate(entries):
        entry_side = find_side(entry.role)
        if entry.form is Form.OMITTED:
            # As when it was drafted: what is left out neither opens nor joins a message by what is sent now.
            joined = entry.segment.joins and entry_side == logged_side
            opens = entry.opens and not joined
            if opens != entry.opens:
                entries[at] = msgspec.structs.replace(entry, opens=opens)
            must_open = must_open or opens
        else:
            if not entry.opens and (must_open or entry_side != sent_side):
                entries[at] = msgspec.structs.replace(entry, opens=True)
            must_open = False
            sent_side = entry_side
        if not entry.segment.is_own:
            logged_side = entry_side
    return entries


def _find_lone_texts(entries: Sequence[Entry]) -> list[bool]:
    """Which entries are one lone text in a message of their own.

    For such a text `framing.part` is not paid.
    """
    lone = [False] * len(entries)
    last: int | None = None
    for at, entry in enumerate(entries):
        if entry.form is Form.OMITTED:
            continue
        if not entry.opens and last is not None:
            lone[last] = False
        is_one_text = len(entry.parts) == 1 and isinstance(entry.parts[0], Text)
        lone[at] = entry.opens and is_one_text
        last = at
    return lone


class ReadParameters(NamedTuple):
    """The parameters that the model reads: the formats of its answer, and the others by their names."""

    formats: list[Any]
    others: dict[str, Any]


def find_read_parameters(parameters: Mapping[str, Any]) -> ReadParameters:
    """What of these parameters the model reads, as plain JSON.

    `{"text": {"format": F, "verbosity": "low"}}` has one format, and nothing else that is read.
    """
    formats: list[Any] = []
    others: dict[str, Any] = {}
    for name, parameter in _flatten_parameters(parameters, depth=0):
        value = _to_json_value(parameter, depth=0)
        if name in _FORMAT_HOLDERS and isinstance(value, dict):
            if "format" in value:
                formats.append(value["format"])
            value = _other_read_fields(value)
        elif name == "context_management":
            value = list(_summary_instructions(value))
        if name in ANSWER_FORMATS and value:
            formats.append(value)
        elif _has_words(name, value):
            others[name] = value
    return ReadParameters(formats, others)


def _other_read_fields(holder: dict[str, Any]) -> dict[str, Any]:
    """What the model reads of a parameter that has the format among other things, without the format.

    A field in it may be unread as well, such as the `effort` of an `output_config`.
    """
    other_fields: dict[str, Any] = {}
    for name, value in holder.items():
        if name == "format" or snake(name) in UNREAD_PARAMETERS:
            continue
        other_fields[name] = value
    return other_fields


def snake(name: str) -> str:
    """A name in snake case: `responseSchema` and `response_schema` are both `response_schema`."""
    return _CAPITAL.sub(lambda capital: f"_{lower_ascii(capital[0])}", name)


def _flatten_parameters(parameters: Mapping[Any, Any], *, depth: int) -> Iterator[tuple[str, Any]]:
    """The parameters that may be read, by name in snake case; those that hold parameters are opened.

    SDKs nest them: `config={"generation_config": {…}}` and `extra_body={…}` hold what counts by itself
    elsewhere.
    """
    for original_name, value in parameters.items():
        if not isinstance(original_name, str):
            continue
        name = snake(original_name)
        # The depth is bounded, since a hostile request may nest `config` in `config` without an end.
        may_be_opened = name in _PARAMETER_HOLDERS and depth < len(_PARAMETER_HOLDERS)
        if may_be_opened and isinstance(value, Mapping):
            yield from _flatten_parameters(value, depth=depth + 1)
        elif name not in UNREAD_PARAMETERS:
            yield name, value


def _summary_instructions(value: Any) -> Iterator[str]:
    """The instructions in `context_management` that the model reads: how to sum old turns up.

    The rest tells the server what to do to old turns.
    """
    match value:
        case {"edits": [*edits]} | [*edits]:
            for edit in edits:
                match edit:
                    case {"instructions": str(instructions)}:
                        yield instructions


def _has_words(name: str, value: Any) -> bool:
    """Whether a value has words in it. A choice of tools that names no tool is one of the API's own words.

    `tool_choice="auto"` is not read, `{"type": "function", "name": "find"}` is. Numbers and switches are not.
    """
    if name in ("tool_choice", "function_call"):
        return isinstance(value, dict)
    return isinstance(value, str | dict | list) and bool(value)


def _to_json_value(value: Any, *, depth: int) -> Any:
    """A value as JSON. SDKs take classes for schemas; what is neither JSON nor one of those is not sent."""
    match value:
        case None | str() | bool() | int() | float():
            return value
        case _ if depth > _DEEPEST:
            return None
        case Mapping():
            return {str(name): _to_json_value(item, depth=depth + 1) for name, item in value.items()}
        case list() | tuple():
            return [_to_json_value(item, depth=depth + 1) for item in value]
        case _:
            return _to_json_value(_dump_model(value), depth=depth + 1)


def _dump_model(value: Any) -> Any:
    """The schema of a class, or the fields of an object, of a library such as pydantic; else None."""
    if isinstance(value, type):
        dump = getattr(value, "model_json_schema", None)
        arguments = {}
    else:
        dump = getattr(value, "model_dump", None)
        arguments = _DUMP_AS_JSON
    if not callable(dump):
        return None
    try:
        return dump(**arguments)
    except Exception:  # noqa: BLE001 - a foreign class may raise anything; then the SDK will too
        return None
