"""Old passages that a question is about: sentences by the rare terms that they share with it.

The index grows with what cuts lower, and a look-up reads only the sentences that have a rare term of the
question. Scores are those of BM25, rounded to whole numbers, so that every machine ranks alike.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from lamina.core.text.characters import WHITE_SPACE, fold_case, split_words
from lamina.core.text.courtesy import COURTESY
from lamina.core.text.sentences import find_sentences, split_sentences
from lamina.core.text.standing_rules import find_replaced, find_rules
from lamina.core.text.terms import (
    TermReader,
    find_places,
    find_stem,
    find_terms,
    is_name,
    list_terms,
    rate_length,
)
from lamina.core.values import Ref

SHORTEST_PASSAGE, LONGEST_PASSAGE = 240, 480
"""Characters to which a passage grows around the sentence that was found: its neighbours say what it is
about, and often have the answer to it."""

SHORT_MESSAGE = 240
"""Characters of a message that is found and quoted as a whole: a sentence of it says little alone."""

LONGEST_SENTENCE = 400
"""Characters of one sentence. A line of a file may have thousands, and is cut into pieces of this size."""

GIANT = 200_000
"""Characters of a text that is not indexed, but searched for the terms of each question."""

MOST_SEARCHED = 60
"""Terms of a question for which giant texts are searched."""

COMMON_PART = 20
"""A term that is in more than one sentence in so many says nothing about the question."""

NEVER_COMMON = 3
"""A term in so few sentences is not common, however little was lowered yet."""

MOST_TERMS = 48
"""Terms of a question that are looked for, the rarest first: a question may quote a whole file."""

MOST_PLACES = 4_000
"""Sentences that are rated for one question: all that have its rarest term, and those of further terms as
long as there are no more than these. In a very large conversation a term may be in thousands and not be
common."""

RELATIVE = 0.3
"""A passage is quoted if it has at least this share of the best one's score."""

MOST_RATED = 120
"""Sentences that may be quoted, the best first: ten times what the longest reminder has room for."""

MOST_REFUSED = 8
"""Passages for which there is no room any more before no further one is tried."""

SHARE_OF_PROMPT = 0.2
"""The share of a prompt's weight that the best passages must have. What is said in passing shares a word with
something old by chance, and a reminder of noise is worse than none. If a quarter had to be shared, two long
dialogues would cost the same, and three questions in a hundred fewer would have their answer in sight."""

LEAST_WORTH = 0.6
"""What the shared words must weigh, without those of courtesy. One that stands in a single sentence weighs 1.
Whoever greets or thanks uses words of courtesy, or such as stand everywhere. Of 220 questions about long
dialogues one weighed less."""

_PARTS = 3
"""Passages that may answer a question together."""

_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75
"""The usual constants of BM25."""

_LETTERS_OF_TERM = 6  # of a giant text, whose terms are not counted

_AROUND_SOURCE, _HANDLE = 6, 8
"""Tokens that stand before the words of a source: its turn and its name, and the handle of a part of one if
handles are shown."""

_QUESTION_MARK = re.compile("[?\uff1f\u061f]")  # also of Chinese and Japanese, and of Arabic
_END_MARKS = (".", "!", "\u2026", "\u3002", "\uff0e", "\uff01", "\u06d4", "\u0964")


# Which sentences there are.


class _Sentence(msgspec.Struct, frozen=True, gc=False):
    """A sentence of a source: its place in the source's text, and the number of its terms."""

    source: int
    start: int
    end: int
    terms: int


class _Source(NamedTuple):
    """A lowered segment as text, with the numbers of its first sentence and of the one after its last."""

    ref: Ref
    text: str
    first: int
    end: int
    terms: int


class PassageIndex:
    """The sentences of lowered segments by the terms in them.

    It grows with what cuts lower. A memo keeps it from one prompt to the next, and losing it costs time only:
    what is found depends on the sources alone, not on when they were added.
    """

    def __init__(self) -> None:
        self.sources: list[_Source] = []
        self.sentences: list[_Sentence] = []
        self._postings: dict[str, list[int]] = defaultdict(list)
        self._longer: dict[str, list[str]] = defaultdict(list)
        self._refs: dict[Ref, int] = {}
        self._giants: list[tuple[int, str]] = []
        self._hits: dict[str, list[int]] = {}
        self._rules: dict[Ref, list[tuple[int, str]]] = {}
        self.terms = 0

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._refs

    def holds_only(self, refs: Iterable[Ref]) -> bool:
        """Whether there is no source but these."""
        return self._refs.keys() <= frozenset(refs)

    def add(self, ref: Ref, text: str) -> None:
        """Add the text of a segment. A segment is added once."""
        self._refs[ref] = len(self.sources)
        self._hits.clear()
        first = len(self.sentences)
        number = len(self.sources)
        total = 0
        folded = fold_case(text)  # every character stays at its place
        if len(text) > GIANT:
            self._add_giant(ref, text, folded)
            return
        reader = TermReader(folded)
        postings = self._postings
        for start, end in _split_passages(text):
            terms = reader.list_terms(start, end)
            total += len(terms)
            at = len(self.sentences)
            self.sentences.append(_Sentence(number, start, end, len(terms)))
            for term in set(terms):
                if term not in postings and find_stem(term):
                    self._longer[find_stem(term)].append(term)
                postings[term].append(at)
        self.sources.append(_Source(ref, text, first, len(self.sentences), total))
        self.terms += total

    def _add_giant(self, ref: Ref, text: str, folded: str) -> None:
        """Add a giant text in pieces of equal length. Its terms are looked for when a question has them."""
        first = len(self.sentences)
        starts = range(0, len(text), LONGEST_SENTENCE)
        terms = LONGEST_SENTENCE // _LETTERS_OF_TERM
        number = len(self.sources)
        for start in starts:
            self.sentences.append(_Sentence(number, start, min(start + LONGEST_SENTENCE, len(text)), terms))
        self._giants.append((first, folded))
        self.sources.append(_Source(ref, text, first, len(self.sentences), terms * len(starts)))
        self.terms += terms * len(starts)

    def number_of(self, ref: Ref) -> int:
        """The number of a source."""
        return self._refs[ref]

    def quote(self, number: int) -> str:
        """The words of a sentence on one line."""
        sentence = self.sentences[number]
        return " ".join(split_words(self.sources[sentence.source].text[sentence.start : sentence.end]))

    def list_rules(self, ref: Ref) -> list[tuple[int, str]]:
        """The standing rules in a source, each with the number of its sentence; giant texts have none."""
        rules = self._rules.get(ref)
        if rules is None:
            source = self.sources[self._refs[ref]]
            rules = self._rules[ref] = []
            for number in range(source.first, source.end) if len(source.text) <= GIANT else ():
                rules += [(number, rule) for rule in find_rules(self.quote(number))]
        return rules

    def list_terms(self, text: str) -> list[str]:
        """The different terms of a text that are worth looking for.

        A giant source is searched for one term after the other, so there only the first of them count.
        """
        terms = list(dict.fromkeys(list_terms(text)))
        if self._giants:
            return terms[:MOST_SEARCHED]
        return terms

    def sentences_with(self, term: str) -> Sequence[int]:
        """The numbers of the sentences that have a term, or a form of it with one letter more or less."""
        hits = self._hits.get(term)
        if hits is None:
            forms = [term, find_stem(term), *self._longer.get(term, ())]
            # More than these make a term common, and how common it is does not matter.
            enough = self._most_of_rare() + 1
            found_in_giants = islice(self._search_giants(term), enough)
            found = chain.from_iterable(self._postings.get(form, ()) for form in forms)
            hits = self._hits[term] = sorted({*found, *found_in_giants})
        return hits

    def _search_giants(self, term: str) -> Iterator[int]:
        """The numbers of the pieces of giant texts that have a term. A piece counts once."""
        for first, folded in self._giants:
            last_piece = -1
            for place in find_places(term, folded):
                piece = place // LONGEST_SENTENCE
                if piece > last_piece:
                    yield first + piece
                    last_piece = piece

    def is_common(self, term: str) -> bool:
        """Whether so many sentences have a term that it says nothing about a question."""
        return len(self.sentences_with(term)) > self._most_of_rare()

    def _most_of_rare(self) -> int:
        return max(len(self.sentences) // COMMON_PART, NEVER_COMMON)


def _split_passages(text: str) -> Iterable[tuple[int, int]]:
    """Where the sentences of a text begin and end. A very long one is cut into pieces."""
    if len(text) <= SHORT_MESSAGE:
        yield 0, len(text)
        return
    for sentence_start, end in find_sentences(text):
        start = sentence_start
        while end - start > LONGEST_SENTENCE:
            # Not in its first half: a lone space near the beginning would leave a piece of one word.
            cut = text.rfind(" ", start + LONGEST_SENTENCE // 2, start + LONGEST_SENTENCE)
            if cut < 0:
                cut = start + LONGEST_SENTENCE
            yield start, cut
            start = cut
        yield start, end


# Which of them the question is about.


class _Rated(NamedTuple):
    """A sentence that shares terms with the question, and what it is worth."""

    sentence: int
    score: int


def weigh_terms(index: PassageIndex, text: str) -> dict[str, int]:
    """The rare terms of a text that some passage has, with their weights in thousandths, the heaviest first.

    If the text asks something, the rest of it counts half: it may say what the question is about, or how to
    answer it.
    """
    terms_of_question = frozenset(list_terms(find_questions(text)))
    all_weights: dict[str, int] = {}
    for term in index.list_terms(text):
        if index.sentences_with(term) and not index.is_common(term):
            weight = _weigh_term(index, term)
            if terms_of_question and term not in terms_of_question:
                weight //= 2
            all_weights[term] = weight
    weights: dict[str, int] = {}
    places = 0
    for term, weight in sorted(all_weights.items(), key=lambda item: -item[1])[:MOST_TERMS]:
        places += len(index.sentences_with(term))
        if weights and places > MOST_PLACES:
            break
        weights[term] = weight
    return weights


def _weigh_term(index: PassageIndex, term: str) -> int:
    """How much a term says, in thousandths: the more, the rarer it is.

    A short word says less. In every language the words of grammar are short, and in a short conversation they
    are as rare as any other. The weight is rounded, so that two machines whose logarithms differ in the last
    bit rank alike.
    """
    return round(_weigh_count(index, len(index.sentences_with(term))) * rate_length(term))


def _weigh_count(index: PassageIndex, count: int) -> float:
    """How much a long word says that stands in so many sentences."""
    return 1000 * math.log(1 + (len(index.sentences) - count + 0.5) / (count + 0.5))


def rate_sentences(index: PassageIndex, weights: Mapping[str, int], order: Sequence[Ref]) -> list[_Rated]:
    """The sentences that may be quoted for a question, the best first; of equals the newest.

    A sentence has a score of its own and that of the whole message: an answer often stands beside the words
    of the question, not among them.
    """
    sentence_weights: dict[int, int] = defaultdict(int)
    source_weights: dict[int, int] = defaultdict(int)
    for term, weight in weights.items():
        last_source = -1
        for at in index.sentences_with(term):
            sentence_weights[at] += weight
            number = index.sentences[at].source
            if number != last_source:
                source_weights[number] += weight
                last_source = number
    sentence_length = index.terms / max(len(index.sentences), 1)
    source_length = index.terms / max(len(index.sources), 1)
    rated: list[_Rated] = []
    for at, weight in sentence_weights.items():
        sentence = index.sentences[at]
        source = index.sources[sentence.source]
        own = _damp(weight, sentence.terms, sentence_length)
        whole = _damp(source_weights[sentence.source], source.terms, source_length)
        rated.append(_Rated(at, own + whole))
    least_score = RELATIVE * max((each.score for each in rated), default=0)
    rated = [each for each in rated if each.score >= least_score]
    place_of = {index.number_of(ref): at for at, ref in enumerate(order)}
    rated.sort(
        key=lambda each: (-each.score, -place_of[index.sentences[each.sentence].source], -each.sentence)
    )
    return rated[:MOST_RATED]


def _damp(weight: int, length: int, mean: float) -> int:
    """A weight, less for what is long: a long text has every word by chance."""
    damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length / max(mean, 1))
    return round(weight * (_SATURATION + 1) / (1 + damping))


def is_about(index: PassageIndex, rated: Sequence[_Rated], text: str) -> bool:
    """Whether the best passages have enough of the terms of a text to be about it, and not to look alike.

    A term that no passage has counts half: it says that the text is about something else, or it is a word for
    asking, such as "how much". A question may have several parts, so the best few passages answer it
    together. Courtesy is about nothing, however rare its words are.
    """
    sentences = {each.sentence for each in rated[:_PARTS]}
    sources = [index.sources[index.sentences[number].source] for number in sentences]
    total = 0
    own = 0
    whole = 0
    worth = 0
    content = find_content(text)
    for term in index.list_terms(text):
        if index.is_common(term):
            continue
        numbers = index.sentences_with(term)
        weight = _weigh_term(index, term)
        if not numbers:
            weight //= 2
        total += weight
        if any(_has_number_between(numbers, sentence, sentence + 1) for sentence in sentences):
            own += weight
            if term in content:
                worth += weight
        if any(_has_number_between(numbers, source.first, source.end) for source in sources):
            whole += weight
    rarest = _weigh_count(index, 1)
    return worth >= LEAST_WORTH * rarest and (own + whole) / 2 >= SHARE_OF_PROMPT * total


def find_content(text: str) -> set[str]:
    """The terms of a text without those of courtesy; a greeting is about nobody.

    `Good morning, Dera. And the rent?` has `and`, `the` and `rent`.
    """
    greets, goes_along = _courtesy_terms()
    content: set[str] = set()
    for sentence in split_sentences(text):
        terms = find_terms(sentence.text)
        others = terms - greets - goes_along
        is_greeting = len(others) == 1 and not terms.isdisjoint(greets)
        if not is_greeting:
            content |= others
    return content


@cache
def _courtesy_terms() -> tuple[frozenset[str], frozenset[str]]:
    greets = " ".join(words.greets for words in COURTESY.values())
    goes_along = " ".join(words.goes_along for words in COURTESY.values())
    return frozenset(find_terms(greets)), frozenset(find_terms(goes_along))


def _has_number_between(numbers: Sequence[int], first: int, end: int) -> bool:
    """Whether one of these rising numbers is at least `first` and below `end`."""
    at = bisect_left(numbers, first)
    return at < len(numbers) and numbers[at] < end


def refers_back(index: PassageIndex, text: str) -> bool:
    """Whether a question without rare terms is made of words in common use, such as "and the second one?".

    Numbers, names and words that nobody has used before say that it is about something else, and "How are
    you?" is about nothing.
    """
    terms = index.list_terms(text)
    if not find_content(text):
        return False
    if any(map(is_name, terms)):
        return False
    common = [term for term in terms if index.is_common(term)]
    return len(common) * 2 >= len(terms)


def find_questions(text: str) -> str:
    """The sentences of a text that ask something: they have a question mark, of any script."""
    sentences = [each.text for each in split_sentences(text)]
    return "\n".join(sentence for sentence in sentences if _QUESTION_MARK.search(sentence))


def ends_with_mark(text: str) -> bool:
    """Whether a text ends with a full stop or an exclamation mark, of any script."""
    return text.rstrip(WHITE_SPACE).endswith(_END_MARKS)


# Which of them are quoted.


class PassageChoice:
    """The sentences to quote in so many tokens, each with its neighbours.

    `order` has the sources in the order of the talk. What can be read `in_sight` is not quoted again, and of
    two equal sentences the newest is. Rules and what a question is about share the tokens.
    """

    def __init__(
        self,
        index: PassageIndex,
        order: Sequence[Ref],
        *,
        in_sight: str,
        limit: int,
        count: Callable[[str], int],
        handles: bool = True,
    ) -> None:
        self.index = index
        self.sentences: set[int] = set()
        self.rules: set[int] = set()
        self._limit = limit
        self._left = limit
        self._in_sight = in_sight
        self._count = count
        self._handles = handles
        self._longest = min(max(SHORTEST_PASSAGE, limit * 4 // 3), LONGEST_PASSAGE)
        self._quoted: set[str] = set()
        self._sources: set[int] = set()
        self._order = [index.number_of(ref) for ref in order]
        self._place = {number: at for at, number in enumerate(self._order)}

    def take_rules(self, order: Sequence[Ref], weights: Mapping[str, int], limit: int) -> None:
        """Take the rules in force in these messages of the user that cannot be read, the newest first.

        Before all others come those of which a replaced one can be read, and then those that share terms with
        the prompt, whose `weights` these are; the others have `limit`. A replaced rule stays hidden.
        """
        rules = [(number, rule) for ref in order for number, rule in self.index.list_rules(ref)]
        if all(rule in self._in_sight for _, rule in rules):
            return
        replaced = find_replaced([rule for _, rule in rules])
        needed = {later for earlier, later in replaced.items() if earlier in self._in_sight}
        worth: dict[int, tuple[bool, int]] = {}
        for number, rule in rules:
            if rule not in replaced and rule not in self._in_sight:
                terms = find_terms(self.index.quote(number))
                shared = sum(weight for term, weight in weights.items() if term in terms)
                worth[number] = (rule in needed, shared)
        for number in sorted(worth, key=lambda number: (worth[number], number), reverse=True):
            if any(worth[number]) or self._limit - self._left < limit:
                self.rules.add(number)
                self._take([number])
        self.rules &= self.sentences

    def take_about(self, rated: Sequence[_Rated], limit: int) -> set[int]:
        """Take the best of these sentences, each with its neighbours, in so many tokens with the rules."""
        self._left -= max(self._limit - limit, 0)
        before = set(self.sentences)
        refused = 0
        for each in rated:
            if self._left < _AROUND_SOURCE or refused == MOST_REFUSED:
                break
            if each.sentence in self.sentences or not self._is_new(each.sentence):
                continue
            passage = [at for at in self._grow(each.sentence) if at not in self.sentences]
            refused += not self._take(passage)
        return self.sentences - before

    def _take(self, passage: Sequence[int]) -> bool:
        """Take these sentences if there is room for them."""
        sources = {self.index.sentences[at].source for at in passage}
        tokens = sum(self._count(self.index.quote(at)) + 1 for at in passage)
        for number in sources - self._sources:
            source = self.index.sources[number]
            tokens += _AROUND_SOURCE
            is_rule = self.rules.issuperset(passage)
            if self._handles and not is_rule and len(passage) < source.end - source.first:
                tokens += _HANDLE
        if tokens > self._left:
            return False
        self._left -= tokens
        self._sources |= sources
        self.sentences.update(passage)
        self._quoted.update(self.index.quote(at) for at in passage)
        return True

    def _is_new(self, number: int) -> bool:
        text = self.index.quote(number)
        return text not in self._quoted and text not in self._in_sight

    def _grow(self, number: int) -> list[int]:
        """A sentence with its neighbours, up to the length of a passage.

        Around a message that is quoted whole stand the messages before and after it: a question and its
        answer belong together.
        """
        source = self.index.sentences[number].source
        passage = self._grow_in_source(number)
        size = sum(_length(self.index, at) for at in passage)
        if len(passage) < self.index.sources[source].end - self.index.sources[source].first:
            return passage
        for distance in (1, -1):
            neighbour = self._find_neighbour(source, distance)
            if neighbour is None:
                continue
            sentences = range(self.index.sources[neighbour].first, self.index.sources[neighbour].end)
            length = sum(_length(self.index, at) for at in sentences)
            if size + length <= self._longest:
                passage += [at for at in sentences if self._is_new(at)]
                size += length
        return passage

    def _find_neighbour(self, source: int, distance: int) -> int | None:
        place = self._place[source] + distance
        if not 0 <= place < len(self._order):
            return None
        return self._order[place]

    def _grow_in_source(self, number: int) -> list[int]:
        source = self.index.sources[self.index.sentences[number].source]
        first = number
        last = number
        size = _length(self.index, number)
        while True:
            options = []
            if last + 1 < source.end:
                options.append(last + 1)
            if first > source.first:
                options.append(first - 1)
            fitting = [at for at in options if size + _length(self.index, at) <= self._longest]
            new = [at for at in fitting if self._is_new(at)]
            if not new:
                return list(range(first, last + 1))
            # What follows comes first: an answer stands behind its question.
            nearest = min(new, key=lambda at: (abs(at - number), -at))
            size += _length(self.index, nearest)
            first = min(first, nearest)
            last = max(last, nearest)


def _length(index: PassageIndex, number: int) -> int:
    sentence = index.sentences[number]
    return sentence.end - sentence.start
