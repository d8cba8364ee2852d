"""Gathers the segments of a user's turn: attachments, what the sources find, and the prompt.

Segments of another workspace are left out with a note, and so are messages that the log has already. This
module stores nothing and builds no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.context.gather import gather
from lamina.context.port import GatheredSegments, drop_unchanged
from lamina.context.relevance import PROMPT_KEY, TYPED_KEY
from lamina.core.cut_target import find_trigger
from lamina.core.envelope import Envelope
from lamina.core.kinds import Kinds, is_section, kind_of
from lamina.core.values import Ledger, Role, Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput
from lamina.segments import user
from lamina.sessions.attachments import Attachable, drop_foreign, make_hints, read_attachments
from lamina.sessions.redaction import call_text_function
from lamina.sessions.request_builder import RequestBuilder
from lamina.sessions.setup import Template
from lamina.sessions.turns import METADATA_KEY
from lamina.summaries import Condense, condense_attachments, with_summary

REPEATED_NOTE = (
    "{count} messages that a source found stand in this conversation already, and were left out; "
    "to send only the last ones, open it with policy=Policy(history=LastN({count}))"
)


class GatheredTurn(NamedTuple):
    """A turn in the order of the log. `from_caller` are its segments that no source found."""

    segments: list[Segment]
    from_caller: list[Segment]
    notes: list[str]


async def gather_turn(
    prompt: str,
    *,
    attach: Iterable[Attachable | tuple[Attachable, int]],
    hints: Mapping[str, str] | None,
    template: Template | None,
    metadata: Mapping[str, Any],
    builder: RequestBuilder,
    log: Sequence[Segment],
    envelope: Envelope | None,
) -> GatheredTurn:
    """Gather what belongs to a prompt. `envelope` is the last request, after which the turn will stand."""
    attached = await read_attachments(
        attach, prompt=prompt, workspace=builder.around.workspace, root=builder.around.root
    )
    attachments = [*attached.segments, *make_hints(hints)]
    prompt_segment = _make_prompt(prompt, template or builder.template, metadata)
    room = _count_tokens_before_cut(builder, envelope)
    gathered = await gather(builder.around.sources, prompt, room)
    own = drop_foreign(gathered.segments, builder.around.workspace)
    changed = _drop_unchanged_sections(own.segments, log, builder.options.kinds)
    new = _drop_repeated(changed, log, builder.options.kinds)
    context = [*new.segments, *attachments]
    return GatheredTurn(
        segments=_order_turn(context, prompt_segment, builder.options.kinds),
        from_caller=[*attachments, prompt_segment],
        notes=[*attached.notes, *gathered.notes, *own.notes, *new.notes],
    )


def _make_prompt(typed: str, template: Template | None, metadata: Mapping[str, Any]) -> Segment:
    """The prompt as it is sent. If that is not what was typed, its `meta` has both."""
    sent = _fill_template(typed, template)
    meta: dict[str, Any] = {PROMPT_KEY: True}
    if sent != typed:
        meta[TYPED_KEY] = typed
    if metadata:
        meta[METADATA_KEY] = dict(metadata)
    return user(sent, meta=meta)


def _fill_template(typed: str, template: Template | None) -> str:
    """The text that is sent for a prompt.

    A template is a text with `{prompt}` in it, or a function of what was typed.
    """
    if template is None:
        return typed
    if not isinstance(template, str):
        return call_text_function(template, typed, place="template")
    if "{prompt}" not in template:
        raise BadInput("there is no {prompt} in it", place="template", hint="say where the prompt stands")
    return template.replace("{prompt}", typed)


def _count_tokens_before_cut(builder: RequestBuilder, envelope: Envelope | None) -> int | None:
    """How many tokens can be added before the next cut is due. Without a budget no cut is ever due."""
    if builder.budget is None:
        return None
    tokens = 0
    if envelope is not None:
        tokens = envelope.tokens
    return max(find_trigger(builder.budget, builder.head) - tokens, 0)


def _drop_unchanged_sections(
    segments: Sequence[Segment], log: Sequence[Segment], kinds: Kinds
) -> list[Segment]:
    """The segments without sections of the system text that stand in the log as they are."""
    sections: list[Segment] = []
    rest: list[Segment] = []
    for segment in segments:
        if segment.kind in kinds and is_section(kinds, segment):
            sections.append(segment)
        else:
            rest.append(segment)
    return [*drop_unchanged(sections, lambda: log), *rest]


def _drop_repeated(segments: Sequence[Segment], log: Sequence[Segment], kinds: Kinds) -> GatheredSegments:
    """The segments without messages that are in the log already, and a note about those.

    A client that sends its history again with each turn would otherwise double it.
    """
    if not any(_is_message(segment, kinds) for segment in segments):
        return GatheredSegments(tuple(segments))
    # Comparing two segments compares all of their parts, so only those of equal text are compared.
    messages_by_text: dict[str, list[Segment]] = {}
    for segment in log:
        if _is_message(segment, kinds):
            messages_by_text.setdefault(text_of(segment.parts), []).append(segment)
    new: list[Segment] = []
    for segment in segments:
        same_text = messages_by_text.get(text_of(segment.parts), ())
        if segment not in same_text:
            new.append(segment)
    repeated = len(segments) - len(new)
    if not repeated:
        return GatheredSegments(tuple(new))
    return GatheredSegments(tuple(new), (REPEATED_NOTE.format(count=repeated),))


def _is_message(segment: Segment, kinds: Kinds) -> bool:
    kind = kind_of(kinds, segment)
    return not (kind.attachment or kind.section)


def _order_turn(context: Iterable[Segment], prompt: Segment, kinds: Kinds) -> list[Segment]:
    """A turn in the order of the log: context, the prompt, and what continues its message.

    A picture of the user's joins the prompt. A file stands before it, whatever its message is.
    """
    before: list[Segment] = []
    after: list[Segment] = []
    for item in context:
        is_attachment = item.kind in kinds and kinds[item.kind].attachment
        if item.joins and item.role is Role.USER and not is_attachment:
            after.append(item)
        else:
            before.append(item)
    return [*before, prompt, *after]


async def condense_turn(
    turn: Sequence[Segment],
    condense: Condense,
    *,
    builder: RequestBuilder,
    log: Sequence[Segment],
    ledger: Ledger,
) -> GatheredSegments:
    """The turn with a summary of its attachments, if they are too much and a model wrote one.

    If there is no summary, a note says why.
    """
    outcome = await condense_attachments(log, turn, condense, terms=builder.terms, ledger=ledger)
    unchanged = GatheredSegments(tuple(turn), outcome.notes)
    if outcome.segment is None:
        return unchanged
    sizes = {"before": outcome.before, "after": outcome.after}
    meta = {"summary": outcome.segment.meta["summary"] | sizes}
    prepared = builder.prepare_segments([msgspec.structs.replace(outcome.segment, meta=meta)])
    if not prepared:  # the redaction hook left nothing of it
        return unchanged
    condensed = with_summary(turn, prepared[0], kinds=builder.options.kinds)
    return GatheredSegments(tuple(condensed), outcome.notes)
