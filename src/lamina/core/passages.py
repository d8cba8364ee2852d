"""Old passages that a question is about: sentences by the rare terms that they share with it.

The index grows with what cuts lower, and a look-up reads only the sentences that have a rare term of the
question. Scores are those of BM25, rounded to whole numbers, so that every machine ranks alike.

A term is the beginning of a word, so that `invoice` finds `invoices` in every language without a table of
endings; one with a digit in it stays whole. Short words find each other with one letter more or less: `boat`
finds `boats`. Scripts without spaces between words are read in pairs of characters, and so is Korean, whose
words end in particles. A name such as `src/app.py` or `INV-4711` is a term of its own besides its words: it
is rarer than they are, and so it weighs more.
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

from lamina.core.text.characters import ALPHANUMERIC, BEYOND_ASCII, WHITE_SPACE, fold_case, split_words
from lamina.core.text.courtesy import COURTESY
from lamina.core.text.known_words import KnownWords
from lamina.core.text.sentences import UNSPACED, find_sentences, split_sentences
from lamina.core.text.standing_rules import find_replaced, find_rules
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

_AROUND_SOURCE = 6
"""Tokens that stand before the words of a source: its turn and its name."""

_QUESTION_MARK = re.compile("[?\uff1f\u061f]")  # also of Chinese and Japanese, and of Arabic
_END_MARKS = (".", "!", "\u2026", "\u3002", "\uff0e", "\uff01", "\u06d4", "\u0964")
_HAS_DIGIT_OR_JOINT = re.compile("[0-9._/:@#-]")  # `4711`, `src/app.py`

_DIGIT = re.compile("[0-9]")
_WORD = re.compile(f"[{ALPHANUMERIC}]+")
_TWO_LETTERS = re.compile(f"[{ALPHANUMERIC}]{{2}}")
_BEYOND_ASCII = re.compile(f"[{BEYOND_ASCII}]")
_JOINTS = "._/:@#-"
_JOINT = re.compile(f"[{_JOINTS}]")
_TOKEN = re.compile(f"[{ALPHANUMERIC}{_JOINTS}]+")
_TO_TOKENS = bytes(byte if _TOKEN.match(chr(byte)) else ord(" ") for byte in range(128)).ljust(256)
_LETTERS_OF_TERM = 6  # of a giant text, whose terms are not counted
_STEM, _STEM_BEYOND_LATIN = 5, 4
"""Letters of a word that count. On questions about long talks five did as well as an English stemmer, and
better than whole words. In Cyrillic, Arabic and the scripts of India the last letter of a word changes most
often (`лодка`, `лодку`), so one letter less counts, and of a short word all but the last."""

_SHORTEST_STEM = 3
"""Letters of a word that may have an ending of one letter. In Latin letters a word as short as this has none
but `s`: `car` finds `cars`, but not `care`. Any letter, or two, found fewer answers in long talks."""

_LAST_LATIN = "\u024f"
_IN_PAIRS = re.compile(f"{UNSPACED.pattern}|[\uac00-\ud7a3]")
_ARABIC_ARTICLE = re.compile("[وفبكل]?ال(?=...)")  # `القارب` and `والقارب` are `قارب`


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
        ascii_tokens = _part_tokens(folded)
        has_ascii_tokens = _has_ascii_tokens(folded)
        postings = self._postings
        for start, end in _split_passages(text):
            if has_ascii_tokens or _has_ascii_tokens(folded[start:end]):
                tokens = split_words(ascii_tokens[start:end])
            else:
                tokens = _TOKEN.findall(folded, start, end)
            terms = list(chain.from_iterable(_KNOWN_TOKENS.read_all(tokens)))
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
        """The numbers of the pieces of giant texts that have a term."""
        has_words = not _IN_PAIRS.search(term)
        ends_word = has_words and len(term) < _count_letters(term)
        after_end = _WORD if len(term) < _SHORTEST_STEM else _TWO_LETTERS
        for first, folded in self._giants:
            place = folded.find(term)
            while place >= 0:
                # At the beginning of a text -1 counts as 0, so that nothing stands before the term.
                is_inside = has_words and _WORD.match(folded, place - 1, place)
                goes_on = ends_word and after_end.match(folded, place + len(term))
                if not is_inside and not goes_on:
                    yield first + place // LONGEST_SENTENCE
                    # A piece counts once, however often it has the term.
                    place += LONGEST_SENTENCE - place % LONGEST_SENTENCE - 1
                place = folded.find(term, place + 1)

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
    if any(_HAS_DIGIT_OR_JOINT.search(term) for term in terms):
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


def choose_standing(
    index: PassageIndex, order: Sequence[Ref], *, in_sight: str, limit: int, count: Callable[[str], int]
) -> set[int]:
    """The sentences with rules in force that cannot be read, the newest first, in so many tokens.

    `order` are the user's messages. A rule that a later one replaces stays hidden.
    """
    rules = [(number, rule) for ref in order for number, rule in index.list_rules(ref)]
    if all(rule in in_sight for _, rule in rules):
        return set()
    replaced = find_replaced([rule for _, rule in rules])
    chosen: set[int] = set()
    for number, rule in reversed(rules):
        if number in chosen or rule in replaced or rule in in_sight:
            continue
        tokens = count(index.quote(number)) + _AROUND_SOURCE
        if tokens <= limit:
            limit -= tokens
            chosen.add(number)
    return chosen


def choose_passages(
    index: PassageIndex,
    rated: Sequence[_Rated],
    order: Sequence[Ref],
    *,
    in_sight: str,
    limit: int,
    count: Callable[[str], int],
) -> set[int]:
    """The numbers of the sentences to quote in so many tokens, each with its neighbours.

    What stands in the request is not quoted again, and of two equal sentences the newest is.
    """
    choice = _Choice(index, order, in_sight=in_sight, limit=limit, count=count)
    for each in rated:
        if choice.left < _AROUND_SOURCE or choice.refused == MOST_REFUSED:
            break
        choice.consider(each.sentence)
    return choice.sentences


class _Choice:
    """Sentences that were chosen so far, the tokens that are left, and how often they were not enough."""

    def __init__(
        self,
        index: PassageIndex,
        order: Sequence[Ref],
        *,
        in_sight: str,
        limit: int,
        count: Callable[[str], int],
    ) -> None:
        self.index = index
        self.sentences: set[int] = set()
        self.left = limit
        self.refused = 0
        self._in_sight = in_sight
        self._count = count
        self._longest = min(max(SHORTEST_PASSAGE, limit * 4 // 3), LONGEST_PASSAGE)
        self._quoted: set[str] = set()
        self._sources: set[int] = set()
        self._order = [index.number_of(ref) for ref in order]
        self._place = {number: at for at, number in enumerate(self._order)}

    def consider(self, number: int) -> None:
        """Take a sentence with its neighbours, if there is room for them and it cannot be read already."""
        if number in self.sentences or not self._is_new(number):
            return
        passage = [at for at in self._grow(number) if at not in self.sentences]
        sources = {self.index.sentences[at].source for at in passage}
        tokens = _AROUND_SOURCE * len(sources - self._sources)
        tokens += sum(self._count(self.index.quote(at)) + 1 for at in passage)
        if tokens > self.left:
            self.refused += 1
            return
        self.left -= tokens
        self._sources |= sources
        self.sentences.update(passage)
        self._quoted.update(self.index.quote(at) for at in passage)

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


def list_terms(text: str) -> list[str]:
    """The terms of a text in their order, with those that repeat.

    `Pay the invoices of INV-4711` has `pay`, `the`, `invoi`, `of`, `inv`, `4711` and `inv-4711`.
    """
    words: list[str] = []
    names: list[str] = []
    for token in _list_tokens(text):
        terms = _KNOWN_TOKENS[token]
        if _JOINT.search(token.strip(_JOINTS)):
            names.append(terms[-1])
            terms = terms[:-1]
        words += terms
    return words + names


def find_terms(text: str) -> set[str]:
    """The different terms of a text."""
    return set(chain.from_iterable(_KNOWN_TOKENS.read_all(_list_tokens(text))))


def _list_tokens(text: str) -> list[str]:
    """The tokens of a text in small letters, in their order."""
    folded = fold_case(text)
    if _has_ascii_tokens(folded):
        return split_words(_part_tokens(folded))
    return _TOKEN.findall(folded)


def _has_ascii_tokens(folded: str) -> bool:
    """Whether no token has a character beyond ASCII: arrows and dashes are in none."""
    return folded.isascii() or _BEYOND_ASCII.search(folded) is None


def _part_tokens(folded: str) -> str:
    """A text of small letters with a space for each character that is between tokens, or beyond ASCII."""
    return folded.encode("ascii", "replace").translate(_TO_TOKENS).decode("ascii")


def _read_token(token: str) -> tuple[str, ...]:
    """The terms of the words in a token, and the whole of it if it is a name of several words."""
    terms: list[str] = []
    for word in _WORD.findall(token):
        terms += _split_word(word)
    name = token.strip(_JOINTS)
    if _JOINT.search(name):
        terms.append(name)
    return tuple(terms)


_KNOWN_TOKENS = KnownWords(_read_token, longest=40)  # a token of Chinese may be a whole sentence


def rate_length(term: str) -> float:
    """What a term is worth by its length: less than 1 for a word of fewer letters than count."""
    letters = _count_letters(term)
    if len(term) >= letters or _DIGIT.search(term) or _IN_PAIRS.search(term):
        return 1.0
    return len(term) / letters


def _count_letters(word: str) -> int:
    """How many letters of a word count."""
    if word > _LAST_LATIN:
        return _STEM_BEYOND_LATIN
    return _STEM


def find_stem(term: str) -> str:
    """A term without its last letter if that may be an ending, as `boat` of `boats`; empty if not."""
    stem = term[:-1]
    if len(stem) < _SHORTEST_STEM or _HAS_DIGIT_OR_JOINT.search(term) or _IN_PAIRS.search(term):
        return ""
    if len(stem) == _SHORTEST_STEM and term <= _LAST_LATIN and not term.endswith("s"):
        return ""
    return stem


def _split_word(word: str) -> list[str]:
    """The terms of one word: its beginning, or its pairs of characters if its script has no spaces.

    A Korean word of two syllables may be one of a single syllable with its particle.
    """
    if _IN_PAIRS.search(word) is None:
        return [_cut_to_stem(word)]
    if len(word) == 1:
        return [word]
    pairs = [word[at : at + 2] for at in range(len(word) - 1)]
    if len(pairs) == 1 and UNSPACED.search(word) is None:
        pairs.append(word[0])
    return pairs


def _cut_to_stem(word: str) -> str:
    """The letters of a word that count."""
    if _DIGIT.search(word):
        return word
    if word <= _LAST_LATIN:
        return word[:_STEM]
    article = _ARABIC_ARTICLE.match(word)
    if article:
        word = word[article.end() :]
    return word[: max(min(len(word) - 1, _STEM_BEYOND_LATIN), _SHORTEST_STEM)]
