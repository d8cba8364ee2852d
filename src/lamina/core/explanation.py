"""The account of a request: every segment with its layer, form, tokens and reason, as rows or as a table.

The table is for a terminal, and readable without colour: what a digest stands for is one line of it.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from lamina.core.digests import is_digest
from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.text.characters import make_printable
from lamina.core.text.clipping import count_units
from lamina.core.tokens import Basis
from lamina.core.tool_definitions import list_toolsets
from lamina.core.values import Cut, Form, Layer, Raw
from lamina.core.wording import describe_segment, text_of

UNCOUNTED_TOOLS = "the API adds the tools of {!r} by itself: their tokens are not known, and not counted"
"""A note about tools that only the provider's server knows."""


class ManifestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the manifest.

    `turn` counts from 1, `age` is in steps, `cut` is the number of the cut that lowered it, 0 without one.
    `fold` is the key of the digest that it is folded into, or a part of.
    """

    key: str
    ref: str
    what: str
    layer: Layer
    form: Form
    tokens: int
    why: str
    recall: str = ""
    kind: str = ""
    turn: int = 0
    age: int = 0
    cut: int = 0
    fold: str = ""
    pinned: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was decided about one request. `rows` and the other amounts sum to `tokens`."""

    rows: tuple[ManifestRow, ...]
    tokens: int
    exact: bool
    basis: Basis
    tools: int
    answer: int
    parameters: int
    request: int
    margin: int
    room: int | None
    cut: Cut | None
    notes: tuple[str, ...]

    @property
    def layers(self) -> dict[Layer, int]:
        """Tokens by layer, in the order of the request. Layers without a token are left out."""
        sums: Tally[Layer] = Tally()
        for row in self.rows:
            sums[row.layer] += row.tokens
        return {layer: sums[layer] for layer in Layer if sums[layer]}

    def __str__(self) -> str:
        return format_manifest(self)


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something of a conversation that is not sent in full: what it is, why, how large, and how to get it.

    `form` says what is sent of it: `COMPACT` its outline, `STUB` one line, `OMITTED` at most a line of a
    digest. `characters` are those of its full text. `handle` is what `Fitted.recall` takes. `cut` is the
    number of the cut that lowered it.
    """

    what: str
    form: Form
    why: str
    characters: int
    handle: str
    kind: str = ""
    turn: int = 0
    cut: int = 0

    def __str__(self) -> str:
        what = make_printable(name_plainly(self.kind, self.what))
        why = make_printable(self.why)
        if why.startswith("folded into"):
            why = "a digest stands for it"
        size = count_units(self.characters, "characters")
        return f'{what}, {size}: {_FORM_WORDS[self.form]} ({why}); recall("{self.handle}")'


def list_left_out(envelope: Envelope) -> tuple[LeftOut, ...]:
    """Everything that is not sent in full, in the order of the conversation."""
    left_out: list[LeftOut] = []
    for row, entry in zip(explain(envelope).rows, envelope.entries, strict=True):
        if row.form is Form.FULL:
            continue
        missing = LeftOut(
            what=row.what,
            form=row.form,
            why=row.why,
            characters=len(text_of(entry.segment.parts)),
            handle=row.recall,
            kind=row.kind,
            turn=row.turn,
            cut=row.cut,
        )
        left_out.append(missing)
    return tuple(left_out)


def explain(envelope: Envelope) -> Manifest:
    """Everything that was decided about one request.

    What is folded, and each part of a digest, has the key of the fold: by it `join_folds` makes one row of
    them.
    """
    account = envelope.account
    fold_keys: dict[str, str] = {}
    cuts = {ref: line.cut for ref, line in envelope.ledger.lines.items()}
    for fold in envelope.ledger.folds:
        fold_keys |= dict.fromkeys(fold.covers, fold.key)
        cuts |= dict.fromkeys(fold.covers, fold.cut)
    last_step = max((entry.step for entry in envelope.entries), default=0)
    rows: list[ManifestRow] = []
    for entry in envelope.entries:
        content_handle = handle(entry.content)
        fold_key = fold_keys.get(entry.ref, "")
        if is_digest(entry):
            fold_key = entry.segment.key.partition("!")[0]
        # What is whole needs no key to recall it.
        recall_key = ""
        if entry.form is not Form.FULL:
            recall_key = content_handle
        row = ManifestRow(
            key=entry.segment.key or content_handle,
            ref=entry.ref,
            what=describe_segment(entry.segment),
            layer=entry.layer,
            form=entry.form,
            tokens=entry.tokens,
            why=entry.why,
            recall=recall_key,
            kind=entry.segment.kind,
            turn=entry.turn + 1,
            age=last_step - entry.step,
            cut=cuts.get(entry.ref, 0),
            fold=fold_key,
            pinned=entry.segment.pinned,
        )
        rows.append(row)
    uncounted = [name for name in list_toolsets(envelope.head.tools) if not _lists_tools(envelope, name)]
    return Manifest(
        rows=tuple(rows),
        tokens=account.total,
        exact=account.exact and not uncounted,
        basis=account.basis,
        tools=account.tools,
        answer=account.answer,
        parameters=account.parameters,
        request=account.request,
        margin=account.margin,
        room=envelope.room,
        cut=envelope.cut,
        notes=(*envelope.notes, *map(UNCOUNTED_TOOLS.format, uncounted)),
    )


def _lists_tools(envelope: Envelope, server: str) -> bool:
    """Whether the tools of a server stand in the log: OpenAI's API answers with a list of them first."""
    for part in chain.from_iterable(entry.segment.parts for entry in envelope.entries):
        match part:
            case Raw(data={"type": "mcp_list_tools", "server_label": label}) if label == server:
                return True
    return False


def join_folds(rows: Sequence[ManifestRow]) -> list[ManifestRow]:
    """The rows, with one for each digest: it has the tokens of all its parts, and says what it stands for.

    It stands where the first row of its fold stood.
    """
    joined: list[ManifestRow] = []
    members: dict[str, list[ManifestRow]] = {}
    places: dict[str, int] = {}
    for row in rows:
        if not row.fold:
            joined.append(row)
            continue
        # The first row keeps the place until all rows of its fold are known.
        if row.fold not in places:
            places[row.fold] = len(joined)
            joined.append(row)
        members.setdefault(row.fold, []).append(row)
    for fold, at in places.items():
        joined[at] = _join_fold(fold, members[fold])
    return joined


def _join_fold(key: str, rows: Sequence[ManifestRow]) -> ManifestRow:
    """One row for a digest. Of its rows, those that are sent are the digest, and it covers the others.

    It stands in the layer in which it is sent, and names the turns that it covers.
    """
    covered = [row for row in rows if row.form is Form.OMITTED]
    sent = [row for row in rows if row.form is not Form.OMITTED]
    turns = sorted(row.turn for row in covered or rows)
    tokens = 0
    age = 0
    cut = 0
    for row in rows:
        tokens += row.tokens
        age = max(age, row.age)
        cut = max(cut, row.cut)
    return ManifestRow(
        key=key,
        ref=rows[0].ref,
        what=f"digest {key}",
        layer=(sent or rows)[0].layer,
        form=Form.FULL,
        tokens=tokens,
        why=f"stands for {len(covered):,} pieces of {_name_turns(turns[0], turns[-1])}",
        kind="digest",
        turn=turns[0],
        age=age,
        cut=cut,
        fold=key,
    )


def _name_turns(first: int, last: int) -> str:
    """`turn 3`, or `turns 3–7`."""
    if first == last:
        return f"turn {first}"
    return f"turns {first}–{last}"


_PLAIN_NAMES = {
    "user": "a message of the user",
    "assistant": "a reply of the model",
    "tool_call": "the call of {}",
    "tool_result": "the result of {}",
}


def name_plainly(kind: str, what: str) -> str:
    """What a segment is, for a sentence: `the result of read_file src/a.py`, `a message of the user`."""
    return _PLAIN_NAMES.get(kind, "{}").format(what)


_ARRIVALS = {"user": "said", "assistant": "written", "tool_call": "called", "tool_result": "returned"}
"""How a segment of a kind came into the conversation; all others were attached."""

_FORM_WORDS = {
    Form.FULL: "sent in full",
    Form.COMPACT: "shortened",
    Form.STUB: "replaced by one line",
    Form.OMITTED: "left out",
}
_HINTS = {
    Form.FULL: "; pin it to keep it",
    Form.COMPACT: "; pin it to keep what is left",
    Form.STUB: "; pin it to keep what is left",
}
_REASONS_OF_AGE = ("old result", "old reply", "attachment", "large arguments", "image or document", "folded")


def describe_row(row: ManifestRow) -> str:
    """Why a segment stands as it does, in a sentence.

    `src/a.py: attached at turn 3, shortened at cut 2, since it is 41 steps old; pin it to keep what is left`
    """
    if row.kind == "system":
        return f"{row.key}: system text, which is always sent in full"
    if row.kind == "digest":
        return f"{row.key}: {row.why}"
    form = _FORM_WORDS[row.form]
    if row.fold and row.form is Form.OMITTED:
        form = f"left out for the digest {row.fold}"
    if row.cut:
        form += f" at cut {row.cut}"
    hint = _HINTS.get(row.form, "")
    if row.pinned:
        hint = "; it is pinned, so no cut shortens it"
    arrival = _ARRIVALS.get(row.kind, "attached")
    return f"{row.key}: {arrival} at turn {row.turn}, {form}{_describe_reason(row)}{hint}"


def _describe_reason(row: ManifestRow) -> str:
    """The end of the sentence of `describe_row`: why the segment has its form, as a user would say it.

    What a cut lowers for its age has one reason for each sort of segment; to a user they are all its age.
    """
    if row.why == "in full":
        return ""
    if row.form is Form.FULL:
        return f", {row.why}"
    if row.why.startswith("superseded by"):
        return ", since a later result replaces it"
    if row.why.startswith(_REASONS_OF_AGE):
        return f", since it is {count_units(row.age, 'steps')} old"
    return f", since: {row.why}"


class _TableLine(NamedTuple):
    """The cells of one printed line."""

    layer: str
    form: str
    tokens: str
    what: str
    why: str


_TABLE_HEAD = _TableLine(layer="where", form="form", tokens="tokens", what="what", why="why")
_WIDTH = 100  # characters of a line
_GAPS = 8  # characters between the five columns
_NARROWEST = 20  # characters that the last two columns have at least


def format_manifest(manifest: Manifest) -> str:
    """The manifest for a terminal: one line for each segment and each digest, and the sums below.

    The first three columns are as wide as they need to be. The other two share what is left of the line, two
    parts for what it is and three for why.
    """
    lines = [_TABLE_HEAD]
    lines += [_print_cells(row) for row in join_folds(manifest.rows)]
    layer_width = max(len(line.layer) for line in lines)
    form_width = max(len(line.form) for line in lines)
    tokens_width = max(len(line.tokens) for line in lines)
    width_of_first = layer_width + form_width + tokens_width
    width_of_last = max(_WIDTH - width_of_first - _GAPS, _NARROWEST)
    what_width = width_of_last * 2 // 5
    printed: list[str] = []
    for line in lines:
        first_cells = f"{line.layer:<{layer_width}}  {line.form:<{form_width}}  {line.tokens:>{tokens_width}}"
        text = f"{first_cells}  {_cut_cell(line.what, what_width):<{what_width}}  {line.why}"
        printed.append(text[: width_of_first + _GAPS + width_of_last].rstrip())
    return "\n".join([*printed, "", _print_sums(manifest)])


def _print_cells(row: ManifestRow) -> _TableLine:
    """The cells of one row, each as text that is safe to print."""
    return _TableLine(
        layer=row.layer.value,
        form=row.form.value,
        tokens=f"{row.tokens:,}",
        what=make_printable(row.what),
        why=make_printable(row.why),
    )


def _cut_cell(text: str, width: int) -> str:
    """The text in at most `width` characters, with an ellipsis if it is longer."""
    if len(text) <= width:
        return text
    return text[: width - 1] + "…"


def _print_sums(manifest: Manifest) -> str:
    """The total with its addends, the cut, and the notes, one a line.

    Amounts of nothing are left out.
    """
    addends = {layer.value: tokens for layer, tokens in manifest.layers.items()}
    addends |= {
        "tools": manifest.tools,
        "answer format": manifest.answer,
        "parameters": manifest.parameters,
        "framing": manifest.request,
        "margin": manifest.margin,
    }
    total = f"{manifest.tokens:,}"
    if manifest.room is not None:
        total += f" of {manifest.room:,}"
    sums = [f"{name} {tokens:,}" for name, tokens in addends.items() if tokens]
    lines = _wrap_sums(f"{total} tokens ({manifest.basis}): ", sums or ["nothing"])
    if manifest.cut is not None:
        lines.append(describe_cut(manifest.cut))
    return "\n".join([*lines, *filter(None, manifest.notes)])


def _wrap_sums(opening: str, addends: Sequence[str]) -> list[str]:
    """The addends with plus signs between them. A line ends before it would be too long."""
    lines = [opening + addends[0]]
    for addend in addends[1:]:
        if len(lines[-1]) + len(addend) + 3 <= _WIDTH:
            lines[-1] += f" + {addend}"
        else:
            lines.append(f"  + {addend}")
    return lines


def describe_cut(cut: Cut | None) -> str:
    """A cut in one line.

    `cut 1: over the trigger, 5,448 to 1,874 tokens, 16 lowered`. A change by the client lowers nothing, and
    has its reason alone.
    """
    if cut is None:
        return ""
    line = f"cut {cut.number}: {cut.reason}"
    if cut.lowered:
        line += f", {cut.before:,} to {cut.after:,} tokens, {cut.lowered} lowered"
    return line
