"""The text of a digest: what was asked in a run of old turns, what failed, what was decided, and on what.

A digest has two voices. The user's words stand apart from what the model and the tools said, so that neither
can be taken for the other. It is deterministic and made of the segments alone: no model is asked, and only
the order of claims in `text.gist` decides what goes first. `run_text` reads the segments; other modules
decide which turns are folded, and how the text is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lamina.core.digest_sizes import LEAST, TITLE_ROOM, DigestSize
from lamina.core.run_text import RunText
from lamina.core.text.gist import print_gist
from lamina.core.text.names import list_counted_names
from lamina.core.text.printed_talk import SMALLEST_DIGEST, print_talk
from lamina.core.text.spoken_messages import LaterRule

NOTES_TITLE = "What was done in it:"
NAMES_LABEL = "  names: "
"""What a digest's line of names begins with. No quoted line of a digest begins with two spaces only."""


class DigestText(NamedTuple):
    """A digest in two voices: the `words` of the user, and `notes` on what the model and the tools said.

    The notes are `replies` that are quoted, and what was `done`.
    `whole`: every message of the user stands in it as it was. `complete`: so does every short reply.
    """

    words: str
    replies: str = ""
    done: str = ""
    whole: bool = True
    complete: bool = True

    @property
    def notes(self) -> str:
        """What is sent in the model's voice."""
        return "\n".join(filter(None, (self.replies, self.done)))

    @property
    def said(self) -> int:
        """Characters of what the user and the assistant said."""
        return len(self.words) + len(self.replies)


def write_within(
    run_text: RunText, size: DigestSize, *, later_rules: Sequence[LaterRule], verbatim: bool
) -> DigestText:
    """Both voices of a digest in this size. What notes and names leave belongs to what was said.

    Where nothing was called, what was said has the first claim on all of it.
    """
    names_limit = size.names
    if not run_text.has_calls:
        notes = _measure_firm_notes(run_text, size.notes)
        size = DigestSize(words=size.total - notes, notes=notes, names=0)
    needed = TITLE_ROOM + _count_characters(run_text, range(len(run_text.talk.messages)))
    least = 0
    if verbatim:
        least = TITLE_ROOM + _count_characters(run_text, run_text.talk.users)
    texts = write_digest(
        run_text,
        words_limit=max(least, min(needed, TITLE_ROOM + size.words)),
        notes_limit=size.notes,
        later_rules=later_rules,
        verbatim=verbatim,
    )
    if not run_text.has_calls:
        names_limit = min(names_limit, size.total + TITLE_ROOM - texts.said - len(texts.done))
    done = _add_names(texts, run_text, limit=names_limit)
    left = size.total + TITLE_ROOM - texts.said - len(done)
    if not texts.complete and left > LEAST:
        # Few notes or names leave room, and what was said has the first claim on it.
        texts = write_digest(
            run_text,
            words_limit=max(least, min(needed, texts.said + left)),
            notes_limit=0,
            later_rules=later_rules,
            verbatim=verbatim,
        )
    return texts._replace(done=done)


def _measure_firm_notes(run: RunText, limit: int) -> int:
    """Characters of notes that come before the user's words in a talk, and `limit` at most.

    These are agreements, errors and what was attached. How a long answer began can be guessed from the
    question, and what looks like a decision in it is most often a heading of some advice.
    """
    firm = [piece for piece in run.notes if piece.claim not in ("said", "noted", "path")]
    if not firm:
        return 0
    return len(print_gist(NOTES_TITLE, firm, limit))


def _count_characters(run_text: RunText, indices: Iterable[int]) -> int:
    """Characters of what was said, with what printing it on lines of their own adds.

    A message in a digest has the number of its turn before it, and four spaces before each of its lines.
    """
    texts = [run_text.talk.clipped_texts[index] for index in indices]
    return sum(len(text) + 4 * text.count("\n") + 60 for text in texts)


def _add_names(texts: DigestText, run_text: RunText, *, limit: int) -> str:
    """What was done, and a line with names that occur in the segments and not in the digest so far.

    By a name such as `parse_config` the model sees what it could recall. Which names are in sight elsewhere
    is known when the cut ends: `cut_names` then puts others into their room. What names leave of it is for
    facts that were read.
    """
    listed = list_counted_names(run_text.names, limit=limit, shown=f"{texts.words}\n{texts.notes}")
    lines = [texts.done] if texts.done else []
    if listed:
        lines.append(f"{NAMES_LABEL}{listed}")
    left = limit - len(listed)
    if left >= LEAST // 2:
        facts = run_text.read_facts.choose(left)
        if facts:
            lines.append(f"  read: {facts}")
    return "\n".join(lines)


def write_digest(
    run: RunText,
    *,
    words_limit: int,
    notes_limit: int,
    later_rules: Sequence[LaterRule] = (),
    verbatim: bool = False,
) -> DigestText:
    """What a run of turns said, in so many characters for what was said and for notes on what was done.

    Notes may use what the words leave. If there is no room for more, the words are one line and the notes are
    empty. `later_rules` are rules that the user gave after the run: a rule in it that they replace is marked.
    `verbatim` asks for every word of the user, if the limit allows it. Replies stand among the notes, since
    they are in the model's voice.
    """
    printed = print_talk(run.title, run.talk, words_limit, later_rules=later_rules, verbatim=verbatim)
    notes_limit += max(words_limit - printed.size - 1, 0)
    done = ""
    # A decision that can be read in a reply is not noted again.
    notes = [piece for piece in run.notes if piece.claim != "noted" or piece.text not in printed.replies]
    if notes and notes_limit >= SMALLEST_DIGEST:
        done = print_gist(NOTES_TITLE, notes, notes_limit)
    return DigestText(printed.words, printed.replies, done, printed.whole, printed.complete)


def write_rules(run: RunText, *, limit: int, later_rules: Sequence[LaterRule] = ()) -> str:
    """The standing rules of a run of turns under its title, in at most `limit` characters.

    It is what stays of the user's words when there is room for nothing else.
    """
    rules = run.with_rules_alone()
    if not rules.messages:
        return run.title
    return print_talk(run.title, rules, limit, later_rules=later_rules).words
