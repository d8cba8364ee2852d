"""What the user said is not lost in silence: rules, wishes and facts are readable after many cuts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from bench.standing_rules import LANGUAGES, Language, RuleTalk, make_talk, rule_talks
from bench.wishes import recognise_half, wish_talks
from lamina import Budget, BuildMemo, Envelope, Ledger, Options, Role, Segment, build
from lamina.core import CHARS4, run_text, text_of
from lamina.core.digests import is_digest
from lamina.core.laws import Case, what_the_user_said_is_not_lost_in_silence
from lamina.core.text.sentences import split_clauses
from lamina.core.text.standing_rules import find_replaced, find_rules, find_statements, weigh_sentence
from lamina.core.text.user_words import (
    LaterRule,
    SpokenMessage,
    Talk,
    mark_replaced_rules,
    print_talk,
    quote_messages,
)
from lamina.segments import assistant, call, result, system, thinking, user
from tests.core.conversations import build_next, sent_text

_RULE_LINE = re.compile(r"  [0-9]+, rule")

QUICK_LANGUAGES = ("English", "Russian", "Arabic", "Chinese")
"""One for each sort of script."""

EACH_LANGUAGE = [
    pytest.param(
        language, id=language.name, marks=() if language.name in QUICK_LANGUAGES else pytest.mark.thorough
    )
    for language in LANGUAGES
]

MOST = 0.02
"""Of the room: what rules may take in an ordinary talk."""


def follow(talk: RuleTalk, *, window: int) -> Envelope:
    """The last request of a talk, built turn by turn. Only every third request is built."""
    log = list_segments(talk)
    ends = [*range(1, len(log), 6), len(log)]
    return grow((log[:end] for end in ends), Budget(window=window, reserve=window // 10))[-1]


def grow(logs: Iterable[Sequence[Segment]], budget: Budget) -> list[Envelope]:
    """The requests for these logs, one after the other. The laws are tried elsewhere: there are many."""
    envelopes: list[Envelope] = []
    ledger = Ledger()
    memo = BuildMemo()
    for log in logs:
        envelope = build(log, budget=budget, counter=CHARS4, ledger=ledger, memo=memo)
        ledger = envelope.ledger
        envelopes.append(envelope)
    return envelopes


@pytest.mark.parametrize("talk", list(rule_talks(10, turns=40)), ids=lambda talk: talk.name)
def test_a_standing_rule_is_readable_at_the_end_of_a_talk(talk: RuleTalk) -> None:
    envelope = follow(talk, window=talk.window)
    assert len(envelope.ledger.cuts) >= 3
    text = sent_text(envelope)
    rules = [line for line in text.split("\n") if _RULE_LINE.match(line)]
    for wish in talk.wishes:
        assert wish.text in text
        if wish.sort == "replaced":
            (line,) = [line for line in rules if wish.text in line]
            assert ", rule, replaced in turn " in line
    rule_tokens = CHARS4.count("\n".join(rules))
    assert rule_tokens <= MOST * talk.window


class TalkBuilder:
    """A talk that is built again and again in a window so large that its digests stay apart for some cuts."""

    def __init__(self, *first: Segment) -> None:
        self.log = list(first)
        self.ledger = Ledger()
        self.memo = BuildMemo()
        self.options = Options()

    def build(self) -> Envelope:
        budget = Budget(window=16_000, reserve=0)
        envelope = build(
            self.log, budget=budget, counter=CHARS4, ledger=self.ledger, memo=self.memo, options=self.options
        )
        self.ledger = envelope.ledger
        return envelope


def talk_until_cut(talk: TalkBuilder, language: Language) -> Envelope:
    """Go on with requests and long replies until the next cut."""
    cuts = len(talk.ledger.cuts)
    while len(talk.ledger.cuts) == cuts:
        turn = len(talk.log)
        talk.log.append(user(language.request.format(n=turn)))
        envelope = talk.build()
        talk.log.append(assistant(language.reply.format(n=turn) * 40))
    return envelope


@pytest.mark.parametrize("language", EACH_LANGUAGE)
def test_a_rule_that_is_replaced_after_its_digest_was_written_is_marked_by_the_next_cut(
    language: Language,
) -> None:
    first, second = language.changes[0]
    kept = language.rules[1]
    talk = TalkBuilder(
        user(language.task),
        assistant("Good."),
        user(first),
        assistant("I will."),
        user(kept),
        assistant("Yes."),
    )
    envelope = talk_until_cut(talk, language)
    (digest,) = envelope.ledger.folds
    assert f"  2, rule: {first}" in digest.text.split("\n")
    replaced_in = 1 + sum(segment.role is Role.USER for segment in talk.log)
    talk.log += [user(second), assistant("As you wish.")]
    envelope = talk_until_cut(talk, language)
    marked, _ = envelope.ledger.folds
    expected = digest.text.replace("  2, rule: ", f"  2, rule, replaced in turn {replaced_in}: ")
    assert marked.text == expected
    assert (marked.key, marked.cut, marked.notes) == (digest.key, digest.cut, digest.notes)
    (replacing,) = marked.replaced_by
    assert [text_of(each.segment.parts) for each in envelope.entries if each.ref == replacing] == [second]
    assert f"  3, rule: {kept}" in sent_text(envelope)
    assert f", rule: {second}" in sent_text(envelope)
    again = talk_until_cut(talk, language)
    assert f", rule, replaced in turn {replaced_in}: " in again.ledger.folds[0].text


def test_a_digest_depends_only_on_later_rules_that_replace_its_own() -> None:
    """The later ones may replace each other. Without those messages the digest still holds."""
    tabs = SpokenMessage(1, "asked", "Always use tabs.")
    british = LaterRule(5, "Always answer in British English.", "ref-5")
    american = LaterRule(6, "From now on answer in American English.", "ref-6")
    spaces = LaterRule(7, "From now on use spaces instead of tabs.", "ref-7")
    assert Talk([tabs], [british, american]).replaced == {}
    assert Talk([tabs], [british, american, spaces]).replaced == {"Always use tabs.": spaces}


def test_no_rule_is_marked_while_the_model_waits_with_thinking_that_is_bound_to_what_was_sent() -> None:
    (language,) = (each for each in LANGUAGES if each.name == "English")
    first, second = language.changes[0]
    talk = TalkBuilder(user(language.task), assistant("Good."), user(first), assistant("I will."))
    talk.options = Options(binding="strict")
    talk_until_cut(talk, language)
    before = talk.ledger.folds
    cuts = len(talk.ledger.cuts)
    talk.log.append(user(second))
    while len(talk.ledger.cuts) == cuts:
        number = len(talk.log)
        talk.log += [
            thinking(f"What does part {number} do? " * 60, signature=f"s{number}"),
            call("read", {"path": f"m{number}.py"}, id=f"c{number}"),
            result(f"part {number} reads a column", id=f"c{number}", name="read"),
        ]
        envelope = talk.build()
    assert envelope.ledger.folds == before
    talk.log.append(assistant("It is done."))
    talk_until_cut(talk, language)
    assert ", rule, replaced in turn " in talk.ledger.folds[0].text


def test_only_the_line_of_the_replaced_rule_is_marked() -> None:
    both = "Always answer in British English.\n\nNever touch vendor/."
    facts = "The importer reads the orders of the shop from a file."
    said = [
        (2, "Always answer in British English."),
        (2, "Never touch vendor/."),
        (3, both),
        (12, f"{facts}\n\nAlways use tabs."),
    ]
    messages = [SpokenMessage(turn, "asked", text) for turn, text in said]
    words = print_talk("Title", Talk(messages), 2_000).words
    later = [
        LaterRule(20, "From now on answer in American English instead."),
        LaterRule(21, "From now on use spaces, not tabs."),
    ]
    marked = mark_replaced_rules(words, messages, later)
    pairs = zip(words.split("\n"), marked.split("\n"), strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == [
        (
            "  2, rule: Always answer in British English.",
            "  2, rule, replaced in turn 20: Always answer in British English.",
        ),
        (f"  12: {facts}", f"  12, with a rule that is replaced in turn 21: {facts}"),
    ]
    assert print_talk("Title", Talk(messages, later), 2_000).words == marked
    assert mark_replaced_rules(marked, messages, later) == marked


def test_a_rule_is_in_force_again_when_the_message_that_replaced_it_is_taken_back() -> None:
    (language,) = (each for each in LANGUAGES if each.name == "English")
    first, second = language.changes[0]
    talk = TalkBuilder(user(language.task), assistant("Good."), user(first), assistant("I will."))
    talk_until_cut(talk, language)
    before = len(talk.log)
    talk.log += [user(second), assistant("As you wish.")]
    talk_until_cut(talk, language)
    assert "replaced in turn" in sent_text(talk.build())
    talk.log = [*talk.log[:before], user("Go on as before.")]
    envelope = talk.build()
    assert first in sent_text(envelope)
    assert "replaced in turn" not in sent_text(envelope)


def test_a_prompt_that_replaces_a_rule_of_all_that_is_folded_may_be_sent_again() -> None:
    """The digest depends on the prompt, and the log has nothing else beside what the digest covers."""
    (language,) = (each for each in LANGUAGES if each.name == "English")
    first, second = language.changes[0]
    log = [user(language.task), assistant("Good."), user(first), assistant(language.reply * 60), user(second)]
    budget = Budget(window=400, reserve=0, keep_last=0)
    envelope = build(log, budget=budget, counter=CHARS4)
    (digest,) = envelope.ledger.folds
    refs = [entry.ref for entry in envelope.entries if not entry.segment.is_own]
    assert [*digest.covers, *digest.replaced_by] == refs
    again = build(log, budget=budget, counter=CHARS4, ledger=envelope.ledger)
    assert again.ledger == envelope.ledger
    assert sent_text(again) == sent_text(envelope)


def test_each_language_knows_its_rules_and_what_replaces_them() -> None:
    for language in LANGUAGES:
        for rule in language.rules:
            assert find_rules(rule) == [rule], rule
        for first, second in language.changes:
            assert find_replaced([first, second]) == {first: second}, first
        assert not find_rules(language.request.format(n=7)), language.request
        assert not find_rules(language.task), language.task


def test_rules_that_hold_in_general_stay_before_others() -> None:
    told = [
        "End all class names with 'k_'.",
        "I want you to look at the second chapter.",
        "From now on answer in German.",
        "I need you to think about the title.",
    ]
    talk = Talk([SpokenMessage(turn, "asked", text) for turn, text in enumerate(told, start=1)])
    assert [index for index, _ in talk.standing] == [2, 0, 3, 1]


NAMING = tuple(
    f"{verb} all {name} names with '{letter}_'."
    for verb, letter in (("Start", "a"), ("End", "b"))
    for name in ("class", "function", "variable", "method", "attribute")
)


def test_rules_that_look_alike_are_about_different_things() -> None:
    assert not find_replaced(NAMING)
    changed = "From now on, end all variable names with 'k_'."
    assert find_replaced([*NAMING, changed]) == {NAMING[7]: changed}


def test_a_rule_that_differs_in_its_value_alone_is_replaced() -> None:
    again = ("Class names should start with 'c_'.", "Class names should start with 'k_'.")
    assert find_replaced([*NAMING[1:], *again]) == {again[0]: again[1]}
    assert not find_replaced(["Always answer in English.", "Always answer in short sentences."])


def test_the_account_says_which_rule_a_digest_keeps() -> None:
    talk = next(rule_talks(1, turns=40))
    envelope = follow(talk, window=talk.window)
    kept = [entry for entry in envelope.entries if "kept: a standing rule" in entry.why]
    assert {text_of(entry.segment.parts) for entry in kept} == {wish.text for wish in talk.wishes}
    turns = [entry.turn + 1 for entry in kept]
    assert [entry.why.rpartition("of turn ")[2] for entry in kept] == [str(turn) for turn in turns]


def test_a_rule_in_an_agents_session_stays_through_its_cuts() -> None:
    rule = "Never touch files under vendor/ and always run `make lint` before you finish."
    log = [system("Be brief."), user("Repair the parser."), assistant("I look around first."), user(rule)]
    requests: list[list[Segment]] = []
    for number in range(60):
        log.append(call("read", {"path": f"src/m{number}.py"}, id=f"c{number}", joins=False))
        log.append(
            result("def f(x):\n    return x + 1  # a line of code\n" * 30, id=f"c{number}", name="read")
        )
        if number % 15 == 14:
            log += [assistant(f"Part {number} is done."), user(f"Now the part after {number}.")]
        requests.append(list(log))
    envelopes = grow(requests, Budget(window=8_000, reserve=0))
    assert all(rule in sent_text(envelope) for envelope in envelopes)
    assert len(envelopes[-1].ledger.cuts) >= 3


def test_few_words_of_the_user_stand_word_for_word() -> None:
    """All that the user said is a tenth of the room at most: every message is quoted."""
    asked = [f"Question {number}: how does the part {number * 7} work?" for number in range(20)]
    answer = assistant("It works as it should, and here is how. " * 80)
    log = [segment for question in asked for segment in (user(question), answer)]
    envelope = grow((log[:end] for end in range(1, len(log), 2)), Budget(window=8_000, reserve=0))[-1]
    assert len(envelope.ledger.cuts) >= 2
    text = sent_text(envelope)
    assert all(question in text for question in asked)


def test_what_the_user_accepted_is_kept_as_agreed() -> None:
    log: list[Segment] = [
        user("How should we store the orders?"),
        assistant(
            "There are two ways. I suggest PostgreSQL with one row for each order. Shall we take that?"
        ),
        user("Yes, do that."),
    ]
    for number in range(30):
        log += [assistant("Done, and here is what I did. " * 20), user(f"And then part {number}?")]
    envelope = build(log, budget=Budget(window=3_000, reserve=0), counter=CHARS4)
    notes = "\n".join(text_of(entry.parts) for entry in envelope.sent if is_digest(entry))
    assert (
        "  agreed: There are two ways. I suggest PostgreSQL with one row for each order. Shall we take that?"
        in notes
    )


def agree_early(language: Language, *, window: int) -> Envelope:
    """The last request of a talk in which the user accepts a proposal in the second turn."""
    talk = make_talk(language, Random(1), name="", window=window, turns=40)  # noqa: S311 - the same each time
    proposed = {"role": "assistant", "content": f"{talk.messages[1]['content']}\n{language.proposal}"}
    agreed = {"role": "user", "content": language.yes}
    messages = [talk.messages[0], proposed, agreed, *talk.messages[3:]]
    return follow(msgspec.structs.replace(talk, messages=messages), window=window)


@pytest.mark.parametrize("language", EACH_LANGUAGE)
def test_what_the_user_accepted_is_readable_after_many_cuts(language: Language) -> None:
    envelope = agree_early(language, window=4_000)
    assert len(envelope.ledger.cuts) >= 3
    (line,) = [line for line in sent_text(envelope).split("\n") if line.startswith("  agreed: ")]
    assert line.endswith(language.proposal)


def test_the_law_finds_a_digest_that_forgets_what_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = f"There are {', '.join(['one way and another'] * 30)}."
    log = [user("How do we store orders?"), assistant(f"{ways} One row each?"), user("Yes.")]
    for number in range(12):
        log += [assistant("Here is what I did. " * 1_000), user(f"And then part {number}?")]
    budget = Budget(window=30_000, reserve=0)
    assert list(check_what_was_said(log, budget)) == []
    monkeypatch.setattr(run_text, "_find_agreed", lambda _segments: set())
    problems = list(check_what_was_said(log, budget))
    assert problems
    assert "accepts, 'One row each?', cannot be read" in problems[0]


def check_what_was_said(log: list[Segment], budget: Budget) -> Iterator[str]:
    envelope = build(log, budget=budget, counter=CHARS4)
    case = Case(log=tuple(log), envelope=envelope, counter=CHARS4)
    return what_the_user_said_is_not_lost_in_silence(case)


def test_what_a_long_sentence_tells_at_its_end_can_be_read() -> None:
    """The clause with the number stays, although there is no room for the sentence around it."""
    told = (
        "I am fairly sure that everything will fit where I would like to have it in the end, "
        "though I may have to move the old toaster oven to some other place of the kitchen first, "
        "since the counter that I measured yesterday is only 37 inches wide"
    )
    talk = [SpokenMessage(1, "asked", "Hello, I have a question.")]
    talk += [SpokenMessage(number, "asked", f"{told.replace('37', str(number))}.") for number in range(2, 30)]
    talk += [SpokenMessage(30, "asked", f"{told}, as I said.")]
    users = Talk(talk)
    room = sum(len(message.text) for message in talk) // 3
    quoted = quote_messages(users, room)
    assert "only 37 inches wide" in quoted[len(talk) - 1].text


def test_clauses_have_all_the_words_of_their_sentence() -> None:
    sentence = (
        "We met on Monday in the large room of the second floor, and there it was decided to wait; so be it"
    )
    (statement,) = find_statements(sentence)
    clauses = [clause.text for clause in split_clauses(statement)]
    assert clauses == [
        "We met on Monday in the large room of the second floor, and there it was decided to wait; so be it"
    ]
    (longer,) = find_statements(f"{sentence}, and this is what I wanted to say to all of you here today")
    clauses = [clause.text for clause in split_clauses(longer)]
    assert len(clauses) == 2
    assert " ".join(clauses) == longer.text


DEMANDED = """
Use tabs and never touch vendor/.
We work with tabs here, so never use spaces.
All commits must be signed.
Every file must have a licence header.
Your code should never use eval.
It should always be UTF-8.
Format dates always as MM/DD/YYYY.
Whenever I ask for code, use tabs.
By default answer in German.
Don't forget to run the tests.
You need to ask before you delete anything.
Every time you finish, run make lint.
Usa siempre comillas simples.
Recuerda que los precios van en euros.
Cuando yo pregunte algo, responde siempre con un ejemplo.
Quiero que siempre me respondas en inglés.
Utilise toujours des tabulations.
Je veux que tu répondes toujours en anglais.
Nunca apague os registros.
Schreib die Tests immer zuerst.
Ich möchte, dass du immer Deutsch sprichst.
Selalu panggil saya Budi.
Всегда отвечай мне на русском.
मुझे हमेशा हिंदी में जवाब दें।
আমাকে সবসময় বাংলায় লিখবেন।
اكتب دائما بالعربية.
ہمیشہ اردو میں بات کریں۔
以后每次都要先告诉我结论。
请一直用中文跟我说话。
必ず日本語で答えてください。
All branch names should begin with the ticket number.
When you name a file, use the date first.
Lena, please add a short summary to every report.
Likewise, make sure that each chapter ends with a question.
I also want you to number the pages.
Now, I want to emphasize the importance of captions.
Alle Zweignamen sollen mit der Ticketnummer beginnen.
Bitte füge jedem Bericht eine kurze Zusammenfassung hinzu.
Tous les noms de branches doivent commencer par le numéro du ticket.
Merci d'ajouter un court résumé à chaque rapport.
Todos los nombres de ramas deberían empezar por el número del ticket.
Cuando nombres un archivo, pon primero la fecha.
Por favor, acrescenta um breve resumo a cada relatório.
É importante que cada tabela tenha uma legenda.
Пожалуйста, добавляй к каждому отчёту короткую сводку.
Важно, чтобы у каждой таблицы была подпись.
请在每份报告里加上简短的摘要。
给文件命名时，先写日期。
どの章も質問で終わるようにしてください。
कृपया हर रिपोर्ट में एक छोटा सारांश जोड़ें।
اجعل كل فصل ينتهي بسؤال.
Tolong tambahkan ringkasan di setiap laporan.
""".strip().split("\n")

TOLD = """
As always, I appreciate your help.
I also don't mind spending a little more.
I'm looking forward to hearing what you have to say.
Whenever I called, somebody was there.
It must have been a great evening.
Learning a new language is always fun.
They cheer us up and always make us smile.
Never heard of it, but it sounds good.
Don't worry about the snacks.
Taking a break is a must.
Siempre he vivido en Madrid.
Yo nunca como carne.
Ella siempre llega tarde, pero es buena.
J'ai toujours aimé la mer.
Il n'était jamais content.
Nous allons toujours au même café.
Eu sempre morei em Lisboa.
Nunca fui ao Brasil.
Ich gehe nie vor Mitternacht schlafen.
Das war schon immer mein Traum.
Saya selalu bangun pagi.
Я всегда встаю рано.
Это никогда не было просто.
मैं हमेशा सुबह दौड़ता हूँ।
वह कभी भी देर से नहीं आती।
আমি সবসময় ভোরে উঠি।
أنا دائما أستيقظ مبكرا.
كانت جدتي دائما تطبخ لنا.
میں ہمیشہ صبح اٹھتا ہوں۔
他们每次都迟到。
私はいつも早く寝ます。
All my friends came to the party on Saturday.
There are two conventions I want you to know about.
Please add a summary.
When we were young, we sailed every summer.
It is important to me that you came.
Als wir jung waren, segelten wir jeden Sommer.
Bitte füge eine kurze Zusammenfassung hinzu.
Tous mes amis sont venus à la fête samedi.
En esta ciudad llueve cada día.
Eso me recuerda a Alicia.
Nesta cidade chove todos os dias.
В этом городе дождь идёт каждый день.
我们年轻时，每年夏天都去航海。
若いころは毎年夏に船に乗りました。
जब हम छोटे थे, हर गर्मी में नाव चलाते थे।
في هذه المدينة تمطر كل يوم.
""".strip().split("\n")


@pytest.mark.parametrize("sentence", DEMANDED)
def test_what_is_demanded_is_a_rule(sentence: str) -> None:
    assert weigh_sentence(sentence) == "rule"


@pytest.mark.parametrize("sentence", TOLD)
def test_what_is_only_told_is_no_rule(sentence: str) -> None:
    """A false rule would stand whole in every later digest, in the place of what the user told."""
    assert weigh_sentence(sentence) in ("wish", "")


# Wishes.


def test_most_wishes_are_known_and_few_other_sentences_are_taken_for_one() -> None:
    """The half that the tables were written beside; the bench has the figures of the other one."""
    rows = list(recognise_half("dev"))
    assert all(row.known >= 0.9 * row.wishes for row in rows)
    assert all(row.mistaken <= 0.2 * row.others for row in rows)


def list_wish_talks() -> Iterator[Any]:
    """A talk in each language. A quick run tries some; the tables of all are tried above."""
    for talk in wish_talks("dev", windows=(4_000,)):
        is_quick = talk.name in QUICK_LANGUAGES
        yield pytest.param(talk, id=talk.name, marks=() if is_quick else pytest.mark.thorough)


def list_segments(talk: RuleTalk) -> list[Segment]:
    return [(user if each["role"] == "user" else assistant)(each["content"]) for each in talk.messages]


@pytest.mark.parametrize("end", [43, 75])
def test_a_short_message_is_quoted_whole_though_a_digest_has_one_of_its_sentences(end: int) -> None:
    """The reminder of such a talk has messages that the digest beside it quotes in part."""
    talk = next(each for each in wish_talks("dev", windows=(4_000,)) if each.name == "English")
    envelope = build_next(list_segments(talk)[:end], budget=Budget(window=4_000, reserve=400))
    assert envelope.ledger.reminders


@pytest.mark.parametrize("talk", [*list_wish_talks()])
def test_wishes_are_readable_among_small_talk_with_names_and_numbers(talk: RuleTalk) -> None:
    text = sent_text(follow(talk, window=talk.window))
    missing = [wish.text for wish in talk.wishes if wish.text not in text]
    assert len(missing) <= 0.1 * len(talk.wishes)


@pytest.mark.parametrize(
    ("sentence", "weight"),
    [
        ("By the kids I mean Ann and Tom.", "wish"),
        ("Ana es mi hermana, pero soy alérgica a las nueces.", "wish"),
        ("У дочки аллергия на орехи.", "wish"),
        ("It is Meyer with a y.", "wish"),
        ("我一直住在北京。", "wish"),
        ("She is my sister, not my wife.", "wish"),
        ("Could you give prices in euros?", "wish"),
        ("Could you check this price?", ""),
        ("We have one car.", "wish"),
        ("We had a lovely evening.", ""),
        ("Our server has 64 GB.", ""),
        ("Which book is your favourite this year?", ""),
    ],
)
def test_a_wish_holds_and_what_is_told_or_asked_once_does_not(sentence: str, weight: str) -> None:
    assert weigh_sentence(sentence) == weight


def test_wishes_stay_before_facts() -> None:
    facts = [f"Bus {at} to Harbour Street {at} left at {at} past nine." for at in range(40)]
    wishes = ["I am allergic to bees.", "By the pond I mean the small one."]
    said = [*wishes, *facts]
    messages = [SpokenMessage(turn, "asked", text) for turn, text in enumerate(["Hello.", *said], start=1)]
    quoted = quote_messages(Talk(messages), 400)
    texts = [quotation.text for quotation in quoted.values()]
    assert [text for text in said if text in texts][:2] == wishes
