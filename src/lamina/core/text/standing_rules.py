"""What a user said that holds from then on: standing rules, and wishes, corrections and decisions.

A rule says how to work from now on (`always …`, `never …`, `from now on …`). A wish says what the user
prefers, has chosen or corrects (`I prefer …`, `call me …`, `I meant …`). Both are known by tables of words,
for the most spoken languages; no model is asked. The tables would rather take a sentence too many: one that
is kept costs a line, one that is missed is lost without anybody's knowing.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from functools import cache
from hashlib import sha256
from itertools import chain
from math import log
from typing import Generic, TypeVar

from lamina.core.text import rule_words, wish_words
from lamina.core.text.characters import ALPHANUMERIC, WHITE_SPACE, fold_case, split_words, with_newlines
from lamina.core.text.facts import DIGIT
from lamina.core.text.sentences import (
    COMMA,
    UNSPACED,
    Phrases,
    Statement,
    Weight,
    find_sentences,
    read_different_words,
    split_sentences,
)

_ONLY_TOLD = re.compile(
    r"(?:don't|do not|dont) (?:worry|hesitate|be afraid|give up|know|feel|mind|want|like|think|have to|"
    r"need to|get me|forget(?! to))|"
    r"never (?:been|saw|seen|heard|tried|knew|thought|had|mind|gets?|give up|responded|misses|ceases)|"
    r"always (?:been|a|an|the|here|there|on|happy|glad|good|nice|fun|great|full|such|so|in|[a-z]+ing|"
    r"[a-z]+ed)(?![a-z])|"
    r"must(?:'ve|-| feel| love| be (?:so|such|really|quite|very|great|nice|hard|tough|having|exciting|"
    r"rewarding|amazing|incredible)| have (?:been|felt|had|taken|put|made|got|gone|done|seen|[a-z]+ed|"
    r"a lot)(?![a-z]))|"
    r"should (?:definitely )?(?:try|read|check)"
)
"""How an English sentence goes on that has a word of an order and gives none."""

_AND_BEFORE = re.compile(r"(?<![a-z])(?:and|but)(?: also| then| just)? $")

_DEMANDS = re.compile(r"you (?:need to|have to|should|must|shall)")
_WANTS = re.compile(r"i(?:'d| would)? (?:also )?(?:want|need|expect|like) you to")

_CLAUSE_END = re.compile("[,;:.!?()،؛؟।۔\uff0c\uff1b\uff1a\u3002\uff01\uff1f]")

_NEAR = 4
"""Letters before a word in a script without spaces among which its subject stands: `我们也总是`."""

_CLAUSE_START = re.compile(
    r"[,;:.!?()—–\"]| - |(?<![a-z])(?:and|but|so|please|then|or|because|also|that you)(?![a-z])"
)

LONGEST_AGREEMENT = 120
"""Characters of a message that can be no more than an acceptance. A longer one says something of its own."""

_CONTRAST = re.compile(
    "[,،，] ?(?:not |nicht |pas |não |а не |وليس |不是|而是)|नहीं, |(?<= )не [^,]{1,40}, а |"
    f" (?:with an?|with two|mit|avec une?|avec deux|con|com|через) [{ALPHANUMERIC}](?![{ALPHANUMERIC}'-])|"
    "[”\"'»」“] ?(?:is |are |means |ist |sind |heißt |c'est |est |es |son |é |são |это |就是|是|は|है|هو |هي )"
)
"""How something is set right, spelt or defined: `she is my sister, not my wife`, `Meyer with a y`, `'base' is
our house`."""

LONGEST_HINT = 120
"""Characters of a sentence that may be a wish though it has no word of one: longer ones tell a story."""

LONGEST_STATEMENT, LONGEST_WISH = 400, 240
"""Characters of one rule, and of one wish, that are kept. Of a longer one, the part around its word is."""

_SHORT_TOPIC = 2  # words

SHARE_OF_CHANGE, SHARE_OF_VALUE = 50, 70
"""What two rules must have in common, in hundredths of their words, for the later one to replace the other:
if it says that something changes, and if both give a value."""

_SELDOM, _LEAST_RARITY = 3, 0.3
"""Rules that may have a word before it weighs less, and what a word weighs at least, before it is squared."""

_LITERAL = re.compile("['\"`«“‘„「][^'\"`»”’“」 ]{1,24}['\"`»”’“」]")
"""A value that a rule gives: `'x_'`."""

MOST_IN_FORCE = 200
"""Rules before a later one that it may replace. Each is compared, and one message may have thousands."""

MOST_REMEMBERED = 20_000
"""Sentences whose weight is remembered. Every cut reads all that the user ever said."""

_weights: dict[bytes, Weight] = {}

GIANT = 200_000
"""Characters of a message above which not every sentence of it is weighed. Nobody writes so much: it was put
in, and to weigh two million characters took four seconds."""

_LONG = 4_000  # characters of a message above which its weights are remembered together

_END_OF_GIANT = 10_000  # characters at either end that are read sentence by sentence
_MOST_PLACES = 1_000  # places between them at which a rule or a wish may stand
_AROUND_PLACE = 600  # characters before and after such a place in which its sentence begins and ends
_MOST_SPANS = 50_000  # sentences of long texts whose places are remembered, some 10 MB


Spans = TypeVar("Spans", bound=Sized)


class _WeighedTexts(Generic[Spans]):
    """Where the sentences of long texts stand that have a weight, found by `weigh` and remembered.

    A cut asks several times. The texts are known by their digests, so nobody's words stay in memory for it.
    """

    def __init__(self, weigh: Callable[[str], Spans]) -> None:
        self._weigh = weigh
        self._spans: dict[bytes, Spans] = {}
        self._size = 0

    def read(self, text: str) -> Spans:
        key = _digest(text)
        spans = self._spans.get(key)
        if spans is None:
            spans = self._weigh(text)
            if self._size > _MOST_SPANS:
                self._spans.clear()
                self._size = 0
            self._spans[key] = spans
            self._size += 1 + len(spans)
        return spans


def find_statements(text: str) -> Iterator[Statement]:
    """The sentences of a text, each with its weight.

    `Always use tabs. Is that clear?` has a rule and a sentence without weight. Of a giant text, only both
    ends are read sentence by sentence. Between them stand the rules and wishes, and nothing else.
    """
    if len(text) > GIANT:
        text = with_newlines(text)
        for start, end, weight in _giants.read(text):
            yield Statement(start, end, text[start:end].strip(WHITE_SPACE), weight)
    elif len(text) > _LONG:
        text = with_newlines(text)
        weights = _long_texts.read(text)
        for sentence in split_sentences(text):
            _, weight = weights.get(sentence.start, _NO_WEIGHT)
            yield sentence._replace(weight=weight)
    else:
        for sentence in split_sentences(text):
            yield sentence._replace(weight=weigh_sentence(sentence.text))


_NO_WEIGHT: tuple[int, Weight] = (0, "")


def _weigh_long(text: str) -> dict[int, tuple[int, Weight]]:
    """Where the sentences of a long text end that have a weight, and that, by where they begin.

    Most sentences have no letters of any phrase. It takes far less to find those of the whole text at once.
    """
    folded = _normalise(text)
    words = read_different_words(folded)
    places = sorted({place for table in _tables() for place in table.find_places(folded, words)})
    weights: dict[int, tuple[int, Weight]] = {}
    at = 0
    for start, end in find_sentences(text):
        while at < len(places) and places[at] < start:
            at += 1
        has_phrase = at < len(places) and places[at] < end
        if has_phrase or _CONTRAST.search(folded, start, end):
            weight = weigh_sentence(text[start:end].strip(WHITE_SPACE))
            if weight:
                weights[start] = (end, weight)
    return weights


def _tables() -> tuple[Phrases, ...]:
    """A sentence without a phrase of these has no weight, unless it sets something right."""
    rules = (rule_words.rules(), rule_words.habits(), rule_words.orders(), rule_words.scopes())
    return (*rules, wish_words.telling(), wish_words.asking(), wish_words.speaking())


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _weigh_giant(text: str) -> list[tuple[int, int, Weight]]:
    """Where the statements of a giant text stand, and what they weigh.

    A sentence in its middle is looked for around each place with the letters of a rule or a wish. If there
    are too many of these, the first and the last of them count.
    """
    middle_end = len(text) - _END_OF_GIANT
    folded = _normalise(text)
    tables = (rule_words.rules(), rule_words.habits(), rule_words.orders(), wish_words.telling())
    words = read_different_words(folded)
    places = sorted({place for table in tables for place in table.find_places(folded, words)})
    places = [place for place in places if _END_OF_GIANT <= place < middle_end]
    half = _MOST_PLACES // 2
    if len(places) > _MOST_PLACES:
        places = [*places[:half], *places[-half:]]
    spans = _weigh_around(text, 0, _END_OF_GIANT)
    seen = _END_OF_GIANT
    for place in places:
        if place < seen:
            continue
        sentence = _find_around(text, place, seen)
        seen = sentence.end
        weight = weigh_sentence(sentence.text)
        if weight in ("rule", "wish"):
            spans.append((sentence.start, sentence.end, weight))
    return spans + _weigh_around(text, max(middle_end, seen), len(text))


_long_texts = _WeighedTexts(_weigh_long)
_giants = _WeighedTexts(_weigh_giant)


def _find_around(text: str, place: int, seen: int) -> Statement:
    """The sentence at a place of a giant text, without what was seen before."""
    start = max(place - _AROUND_PLACE, seen)
    sentence = Statement(start, start, "", "")
    for each in split_sentences(text[start : place + _AROUND_PLACE]):
        sentence = each._replace(start=start + each.start, end=start + each.end)
        if sentence.end > place:
            break
    return sentence


def _weigh_around(text: str, start: int, end: int) -> list[tuple[int, int, Weight]]:
    """The sentences between two places of a text, each with its weight."""
    sentences = split_sentences(text[start:end])
    return [(start + each.start, start + each.end, weigh_sentence(each.text)) for each in sentences]


def find_rules(text: str) -> list[str]:
    """The sentences of a text that are standing rules, each as a reader would quote it."""
    if _LONG < len(text) <= GIANT:
        text = with_newlines(text)
        spans = [(start, end) for start, (end, weight) in _long_texts.read(text).items() if weight == "rule"]
        return [quote_statement(text[start:end].strip(WHITE_SPACE)) for start, end in spans]
    return [quote_statement(each.text) for each in find_statements(text) if each.weight == "rule"]


def weigh_sentence(sentence: str) -> Weight:
    """Whether a sentence is a rule, a wish, or neither.

    What only tells of a habit is no rule. A question is none either, unless it has a word such as `from now
    on`. The answer is remembered by the sentence's digest, so nobody's words stay in memory for it.
    """
    key = _digest(sentence)
    weight = _weights.get(key)
    if weight is None:
        weight = _weigh_anew(sentence)
        if len(_weights) >= MOST_REMEMBERED:
            _weights.clear()
        _weights[key] = weight
    return weight


def _weigh_anew(sentence: str) -> Weight:
    folded = _normalise(sentence)
    asks = folded.rstrip(WHITE_SPACE).endswith(("?", "？", "؟"))
    if _sets_rule(folded) and (not asks or rule_words.replacing().find(folded) is not None):
        return "rule"
    if not asks and (_gives_order(folded) or _orders_for_all(folded)):
        return "rule"
    return _weigh_wish(folded, asks=asks)


def _weigh_wish(folded: str, *, asks: bool) -> Weight:
    """Whether a sentence that is no rule is a wish.

    `By the kids I mean Ann and Tom` is a wish, and so is `Could you give prices in euros?`, but `could you
    check this price?` asks for something once. `We have only one car` is a need, and `we had a lovely
    evening` tells what happened.
    """
    is_long = len(folded) > LONGEST_HINT
    is_of_once = not is_long and wish_words.once().find(folded) is not None
    if wish_words.telling().find(folded) is not None or _CONTRAST.search(folded):
        # `Which is your favourite?` asks. A long question says something first.
        return "" if asks and is_of_once else "wish"
    if is_long or is_of_once:
        return ""
    if wish_words.asking().find(folded) is not None:
        return "wish"
    # What has a number is a fact, and its worth is known by that.
    if not asks and not DIGIT.search(folded) and wish_words.speaking().find(folded) is not None:
        return "wish"
    return ""


def _sets_rule(folded: str) -> bool:
    """Whether a sentence has words of a rule.

    `you need to ask first` has, and `what you need to know` has none.
    """
    for place in rule_words.rules().find_all(folded):
        if _WANTS.match(folded, place):
            clause = _CLAUSE_START.split(_read_before(folded, place))[-1]
            # `I want you to ask` is one, and `there are two conventions I want you to follow` announces some.
            if not _skip_leads(split_words(clause)):
                return True
            continue
        if not _DEMANDS.match(folded, place):
            return True
        word_before = "".join(split_words(_read_before(folded, place))[-1:]).strip(",;:")
        is_subordinate = word_before in rule_words.ASKED_BEFORE
        if not is_subordinate and not _ONLY_TOLD.match(folded, place + len("you ")):
            return True
    return _sets_habit(folded)


def _read_before(folded: str, place: int, start: int = 0) -> str:
    """What stands before a place, as far as a quotation would show it.

    Each word of a sentence may be one of a rule. To read the whole sentence for each takes 16 times as long
    if it is four times as long.
    """
    return folded[max(start, place - LONGEST_STATEMENT) : place]


def _sets_habit(folded: str) -> bool:
    """Whether a word such as `siempre` stands in a clause that does not tell what somebody does.

    `Siempre he vivido aquí` tells, and `usa siempre tabuladores` gives a rule.
    """
    places = list(rule_words.habits().find_all(folded))
    if rule_words.scopes().find(folded) is not None:
        # `Bitte füge eine Zeile hinzu` asks once, and `füge jedem Bericht eine hinzu` gives a rule.
        places += rule_words.demands().find_all(folded)
    if not places:
        return False
    told_verbs = sorted(rule_words.told_verbs().find_all(folded))
    subjects = sorted(rule_words.subjects().find_all(folded))
    # A clause has the mark at its end: in Japanese a verb right before it tells.
    bounds = [0, *(match.end() for match in _CLAUSE_END.finditer(folded)), len(folded) + 1]
    for place in places:
        clause = bisect_right(bounds, place)
        start = bounds[clause - 1]
        if _has_place(told_verbs, start, bounds[clause]):
            continue
        if UNSPACED.search(folded[start:place][-1:]):
            start = max(start, place - _NEAR)
        if not _has_place(subjects, start, place):
            return True
    return False


def _orders_for_all(folded: str) -> bool:
    """Whether an English sentence begins with an order that holds for all of something, or on a condition.

    `Add a test to every class` and `When naming classes, begin with a capital` do. `Add a test` is said once.
    """
    has_scope = rule_words.scopes().find(folded) is not None
    for clause in COMMA.split(folded[:LONGEST_STATEMENT]):
        words = _skip_leads(split_words(clause))
        if len(words) < 2:  # a name, or a word such as `additionally`
            continue
        if words[0] in rule_words.CONDITION_STARTS and rule_words.NO_CONDITION.isdisjoint(words[1:2]):
            has_scope = True
            continue
        return has_scope and words[0] in rule_words.VERBS and not _ONLY_TOLD.match(" ".join(words))
    return False


def _skip_leads(words: list[str]) -> list[str]:
    """The words of an English clause without those that may stand before an order."""
    for at, word in enumerate(words):
        if word not in rule_words.LEADS and not word.endswith("ly"):
            return words[at:]
    return []


def _has_place(places: Sequence[int], start: int, end: int) -> bool:
    """Whether one of these places, which are in order, is from `start` on and before `end`."""
    at = bisect_left(places, start)
    return at < len(places) and places[at] < end


def _gives_order(folded: str) -> bool:
    """Whether a sentence has an order in English that is said to somebody.

    `and never touch vendor/` is one. `I never eat meat` and `that it always rains` only tell.
    """
    places = list(rule_words.orders().find_all(folded))
    if not places:
        return False
    starts = [0, *(match.end() for match in _CLAUSE_START.finditer(folded))]
    first_words = [word for clause in _CLAUSE_START.split(folded) for word in split_words(clause)[:1]]
    has_verb = not rule_words.VERBS.isdisjoint(first_words)
    for place in places:
        start = starts[bisect_right(starts, place) - 1]
        if _is_order(folded, place, start, has_verb=has_verb):
            return True
    return False


def _is_order(folded: str, place: int, start: int, *, has_verb: bool) -> bool:
    """Whether the word of an order at this place gives one. Its clause begins at `start`.

    It begins its clause (`Always use tabs`), or a verb does (`use tabs always`), or something is demanded
    (`files should never be empty`). `has_verb`: some clause of the sentence begins with a verb.
    """
    if _ONLY_TOLD.match(folded, place):
        return False
    order = rule_words.orders().read(folded, place)
    if order in rule_words.CONDITIONS:
        # `Whenever you finish, run the tests`: the order stands in a clause of its own.
        after = place + len(order)
        next_words = split_words(folded[after : after + LONGEST_STATEMENT])
        return has_verb or not rule_words.VERBS.isdisjoint(next_words[:1])
    words_before = split_words(_read_before(folded, place, start))
    tells_of_others = not rule_words.OTHERS.isdisjoint(words_before)
    if order.startswith("must"):
        # Something must come before it, and `it is a must` demands nothing.
        return words_before[-1:] not in ([], ["a"]) and not tells_of_others
    if rule_words.LEADS.issuperset(words_before):
        # `They help us and always smile`: the first clause says of whom it is told.
        first_words = split_words(folded[:LONGEST_STATEMENT])[:1]
        tells = not rule_words.OTHERS.isdisjoint(first_words)
        return not tells or not _AND_BEFORE.search(_read_before(folded, place))
    if words_before[-1] in rule_words.MODALS and not tells_of_others:
        return True
    return words_before[0] in rule_words.VERBS


def quote_statement(sentence: str, *, longest: int = LONGEST_STATEMENT) -> str:
    """The sentence, or of a very long one the clauses around the word that gives it its weight."""
    if len(sentence) <= longest:
        return sentence
    middle = _find_weighty_word(sentence)
    first = max(0, middle - longest // 3)
    last = min(len(sentence), first + longest)
    commas = list(COMMA.finditer(sentence))
    before = ""
    if first:
        before = "… "
        first = min((comma.end() for comma in commas if first <= comma.end() <= middle), default=first)
    after = ""
    if last < len(sentence):
        after = " …"
        last = max((comma.start() for comma in commas if middle < comma.start() <= last), default=last)
    return f"{before}{sentence[first:last].strip(WHITE_SPACE)}{after}"


def _find_weighty_word(sentence: str) -> int:
    """The place of the word that makes a sentence a rule or a wish; its beginning if there is none."""
    folded = _normalise(sentence)
    tables = (rule_words.rules(), rule_words.habits(), rule_words.orders(), wish_words.telling())
    for phrases in (*tables, wish_words.asking()):
        place = phrases.find(folded)
        if place is not None:
            return place
    return 0


def find_replaced(rules: Sequence[str]) -> dict[str, str]:
    """Which of these rules, in the order in which they were given, a later one replaces, and by which.

    A later rule replaces an earlier one if it says that something changes, and both have half of their words
    in common: `From now on answer in American English` replaces `Always answer in British English`. If both
    give a value, they must differ in hardly more than that: `End class names with 'k_'` replaces `Class names
    should end with 'c_'`. A word weighs the less, the more rules have it: in long talks `end all variable
    names` and `end all function names` have most words in common, and are about two things.
    """
    # A message may give one rule a thousand times, and a digest is written several times.
    find_words, replaces, gives_value = cache(_find_words), cache(_replaces), cache(_gives_value)
    topics = {rule: _find_topic(rule) for rule in rules}
    weights = _weigh_words(list(topics.values()))
    replaced: dict[str, str] = {}
    for at, later in enumerate(rules):
        if not replaces(later) and not gives_value(later):
            continue
        for earlier in rules[max(0, at - MOST_IN_FORCE) : at]:
            share = SHARE_OF_CHANGE
            if gives_value(later) and gives_value(earlier):
                share = SHARE_OF_VALUE
            elif not replaces(later):
                continue
            is_about_same = _share_words(topics[earlier], topics[later], weights, share)
            # A rule that is given again in the same words replaces nothing.
            if is_about_same and find_words(earlier) != find_words(later):
                replaced[earlier] = later
    return replaced


def _weigh_words(topics: Sequence[frozenset[str]]) -> dict[str, int]:
    """What each word of these topics weighs: in a few rules all words weigh the same."""
    counts = Counter(chain.from_iterable(topics))
    weights: dict[str, int] = {}
    for word, count in counts.items():
        rarity = log(max(len(topics), 1) / max(count, _SELDOM))
        # Whole numbers, so that two machines whose logarithms differ in the last bit agree.
        weights[word] = round(1000 * max(rarity, _LEAST_RARITY) ** 2)
    return weights


def _share_words(one: frozenset[str], other: frozenset[str], weights: Mapping[str, int], share: int) -> bool:
    """Whether two topics share so many hundredths of their words; of a very short one, of its own."""
    shared = one & other
    if not shared:
        return False
    compared = one | other
    if min(len(one), len(other)) <= _SHORT_TOPIC:
        compared = min(one, other, key=len)
    return share * sum(map(weights.__getitem__, compared)) <= 100 * sum(map(weights.__getitem__, shared))


def _gives_value(rule: str) -> bool:
    return _LITERAL.search(rule) is not None


def _replaces(rule: str) -> bool:
    return rule_words.replacing().find(_normalise(rule)) is not None


def _find_words(rule: str) -> frozenset[str]:
    """The words of a rule, without those that say that something changes."""
    return frozenset(_words().findall(rule_words.replacing().remove(_normalise(rule))))


def holds_in_general(rule: str) -> bool:
    """Whether a rule says for what or from when it holds, or gives a value.

    `End class names with 'k_'` and `Never push` do. `I want you to focus on two things` may be about today.
    """
    folded = _normalise(rule)
    tables = (rule_words.scopes(), rule_words.habits(), rule_words.orders(), rule_words.replacing())
    return _gives_value(rule) or any(phrases.find(folded) is not None for phrases in tables)


def is_agreement(text: str) -> bool:
    """Whether a message of the user accepts what was proposed: `Yes, do that.`, `好的`."""
    if len(text) > LONGEST_AGREEMENT:
        return False
    return rule_words.agreements().find(_normalise(text).lstrip(f"{WHITE_SPACE}\"'“")) == 0


def _normalise(text: str) -> str:
    """Small letters, plain apostrophes and plain spaces. Places in the text stay what they are."""
    return fold_case(text).replace("’", "'").replace("\n", " ").replace("\t", " ")


def _find_topic(rule: str) -> frozenset[str]:
    """What a rule is about: its words without those of the tables; without spaces, pairs of letters."""
    folded = _LITERAL.sub(" ", _normalise(rule))
    for phrases in (rule_words.rules(), rule_words.habits(), rule_words.orders(), rule_words.replacing()):
        folded = phrases.remove(folded)
    topic: set[str] = set()
    for word in _words().findall(folded):
        if UNSPACED.search(word):
            topic.update(word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        elif len(word) > 2:
            # Endings differ where the same is meant: `русском` and `русского`.
            topic.add(word[: _STEM if word.isascii() else _SHORT_STEM])
    return frozenset(topic)


_STEM, _SHORT_STEM = 6, 4
"""Letters by which words are compared, of ASCII and of other scripts."""


@cache
def _words() -> re.Pattern[str]:
    return re.compile(f"[{ALPHANUMERIC}]+")
