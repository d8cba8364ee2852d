"""Made-up talks in which the user gives a standing rule, in ten languages, and the rest is work.

Each talk has one rule somewhere in its first half, and often a second one that replaces it. Replies are long
enough that a small window is cut many times. Whoever can read the rule at the end of the talk could follow
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

SEED = 20_261_116


class Language(msgspec.Struct, frozen=True, kw_only=True):
    """What is said in one language. Of two rules in `changes`, the second replaces the first.

    `proposal` is something that the assistant suggests, and `yes` accepts it.
    """

    name: str
    task: str
    proposal: str
    yes: str
    rules: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]
    request: str
    reply: str


LANGUAGES = (
    Language(
        name="English",
        task="Let us build the importer for the shop.",
        proposal="I suggest one table with a row for each order. Shall we do it so?",
        yes="Yes, let's do that.",
        rules=(
            "Never touch anything under vendor/, and always run the linter before you say that you are done.",
            "From now on, keep every function below forty lines.",
            "One thing for all that follows: do not use abbreviations in names.",
        ),
        changes=(("Always answer in British English.", "From now on answer in American English instead."),),
        request="Now part {n}: write the function for column {n} and explain it.",
        reply="The function for column {n} reads the cell, checks it, and gives the value back. ",
    ),
    Language(
        name="Chinese",
        task="我们来写商店的导入程序。",
        proposal="我建议用一张表，每个订单一行。这样可以吗？",
        yes="好的，就这样。",
        rules=(
            "从现在起，所有注释都必须用中文写。",
            "绝对不要修改 vendor 目录里的任何文件。",
            "以后每次回答都要先给出结论。",
        ),
        changes=(("请始终用简体中文回答。", "从现在开始改用繁体中文回答。"),),
        request="现在第 {n} 部分：请写第 {n} 列的函数并解释。",
        reply="第 {n} 列的函数读取单元格，检查它，然后返回数值。",
    ),
    Language(
        name="Hindi",
        task="चलो दुकान के लिए इम्पोर्टर बनाते हैं।",
        proposal="मेरा सुझाव है कि एक तालिका हो, हर ऑर्डर की एक पंक्ति। क्या ऐसा करें?",
        yes="हाँ, ऐसा ही करो।",
        rules=("अब से हमेशा छोटे वाक्यों में जवाब दें।", "vendor फ़ोल्डर की किसी भी फ़ाइल को कभी मत बदलना।"),
        changes=(("हमेशा हिंदी में जवाब दें।", "अब से हिंदी के बजाय अंग्रेज़ी में जवाब दें।"),),
        request="अब भाग {n}: कॉलम {n} का फ़ंक्शन लिखो और समझाओ।",
        reply="कॉलम {n} का फ़ंक्शन सेल पढ़ता है, उसे जाँचता है और मान लौटाता है। ",
    ),
    Language(
        name="Spanish",
        task="Vamos a construir el importador de la tienda.",
        proposal="Propongo una sola tabla con una fila por pedido. ¿Lo hacemos así?",
        yes="Sí, de acuerdo.",
        rules=(
            "A partir de ahora usa siempre nombres en español para las variables.",
            "No toques nunca los archivos de vendor/.",
        ),
        changes=(("Responde siempre de usted.", "De ahora en adelante responde de tú en lugar de usted."),),
        request="Ahora la parte {n}: escribe la función de la columna {n} y explícala.",
        reply="La función de la columna {n} lee la celda, la comprueba y devuelve el valor. ",
    ),
    Language(
        name="French",
        task="Construisons l'importateur de la boutique.",
        proposal="Je propose une seule table avec une ligne par commande. On fait ainsi ?",
        yes="Oui, d'accord.",
        rules=(
            "Désormais, vouvoie toujours le lecteur dans la documentation.",
            "Ne modifie jamais les fichiers de vendor/.",
        ),
        changes=(("Réponds toujours en français.", "À partir de maintenant, réponds plutôt en anglais."),),
        request="Maintenant la partie {n} : écris la fonction de la colonne {n} et explique-la.",
        reply="La fonction de la colonne {n} lit la cellule, la vérifie et renvoie la valeur. ",
    ),
    Language(
        name="Arabic",
        task="لنكتب برنامج الاستيراد للمتجر.",
        proposal="أقترح جدولا واحدا بصف لكل طلب. هل نفعل ذلك؟",
        yes="نعم، لنفعل ذلك.",
        rules=("من الآن فصاعدا اكتب دائما تعليقات قصيرة.", "لا تلمس أبدا الملفات في مجلد vendor."),
        changes=(("أجب دائما بالعربية الفصحى.", "من الآن أجب بالإنجليزية بدلا من العربية الفصحى."),),
        request="الآن الجزء {n}: اكتب دالة العمود {n} واشرحها.",
        reply="دالة العمود {n} تقرأ الخلية وتفحصها ثم تعيد القيمة. ",
    ),
    Language(
        name="Bengali",
        task="চলুন দোকানের জন্য ইমপোর্টার বানাই।",
        proposal="আমি একটি টেবিল প্রস্তাব করি, প্রতি অর্ডারে একটি সারি। তাই করব?",
        yes="হ্যাঁ, তাই করুন।",
        rules=("এখন থেকে সবসময় ছোট বাক্যে উত্তর দেবেন।", "vendor ফোল্ডারের কোনো ফাইল কখনোই বদলাবেন না।"),
        changes=(("সবসময় বাংলায় উত্তর দেবেন।", "এখন থেকে বাংলার বদলে ইংরেজিতে উত্তর দেবেন।"),),
        request="এবার অংশ {n}: কলাম {n}-এর ফাংশন লিখুন এবং বুঝিয়ে দিন।",
        reply="কলাম {n}-এর ফাংশন ঘরটি পড়ে, যাচাই করে এবং মান ফেরত দেয়। ",
    ),
    Language(
        name="Portuguese",
        task="Vamos construir o importador da loja.",
        proposal="Proponho uma só tabela com uma linha por pedido. Fazemos assim?",
        yes="Sim, pode ser.",
        rules=(
            "De agora em diante, escreva sempre os testes antes do código.",
            "Nunca altere os arquivos de vendor/.",
        ),
        changes=(
            ("Responda sempre em português.", "A partir de agora responda em inglês em vez de português."),
        ),
        request="Agora a parte {n}: escreva a função da coluna {n} e explique.",
        reply="A função da coluna {n} lê a célula, verifica e devolve o valor. ",
    ),
    Language(
        name="Russian",
        task="Давай напишем импорт для магазина.",
        proposal="Предлагаю одну таблицу со строкой на каждый заказ. Сделаем так?",
        yes="Да, давай.",
        rules=("Отныне всегда пиши тесты перед кодом.", "Никогда не меняй файлы в папке vendor."),
        changes=(
            (
                "Всегда отвечай на русском языке.",
                "С этого момента отвечай на английском языке вместо русского.",
            ),
        ),
        request="Теперь часть {n}: напиши функцию для столбца {n} и объясни её.",
        reply="Функция столбца {n} читает ячейку, проверяет её и возвращает значение. ",
    ),
    Language(
        name="Urdu",
        task="آئیے دکان کے لیے امپورٹر بناتے ہیں۔",
        proposal="میری تجویز ہے کہ ایک جدول ہو، ہر آرڈر کی ایک سطر۔ کیا ایسا کریں؟",
        yes="جی ہاں، ایسا ہی کریں۔",
        rules=("اب سے ہمیشہ مختصر جملوں میں جواب دیں۔", "vendor فولڈر کی کسی فائل کو کبھی مت بدلنا۔"),
        changes=(("ہمیشہ اردو میں جواب دیں۔", "اب سے اردو کے بجائے انگریزی میں جواب دیں۔"),),
        request="اب حصہ {n}: کالم {n} کا فنکشن لکھیں اور سمجھائیں۔",
        reply="کالم {n} کا فنکشن خانہ پڑھتا ہے، جانچتا ہے اور قیمت واپس کرتا ہے۔ ",
    ),
)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that must be readable at the end of a talk: `rules`, or `replaced` with a mark at it."""

    sort: str
    text: str


class RuleTalk(msgspec.Struct, frozen=True, kw_only=True):
    """A talk with standing rules, and the window that it is made for."""

    name: str
    window: int
    messages: list[dict[str, Any]]
    wishes: list[Wish]


def rule_talks(count: int, *, windows: tuple[int, ...] = (4_000,), turns: int = 60) -> Iterator[RuleTalk]:
    """So many talks, the same each time, in all languages and windows in turn."""
    dice = Random(SEED)  # noqa: S311 - the same talks each time
    for number in range(count):
        language = LANGUAGES[number % len(LANGUAGES)]
        window = windows[number // len(LANGUAGES) % len(windows)]
        yield make_talk(language, dice, name=f"{language.name}-{number}", window=window, turns=turns)


def make_talk(language: Language, dice: Random, *, name: str, window: int, turns: int) -> RuleTalk:
    """A talk of so many turns, with replies so long that the window is cut several times."""
    said: dict[int, str] = {}
    wishes: list[Wish] = []
    if dice.random() < 0.5:
        first, second = dice.choice(language.changes)
        said[dice.randrange(1, turns // 4)] = first
        said[dice.randrange(turns // 4, turns // 2)] = second
        wishes += [Wish(sort="replaced", text=first), Wish(sort="rules", text=second)]
    else:
        rule = dice.choice(language.rules)
        said[dice.randrange(1, turns // 2)] = rule
        wishes.append(Wish(sort="rules", text=rule))
    sentences = max(window * dice.choice((8, 12, 20)) // (turns * 30), 1)
    messages = [{"role": "user", "content": language.task}]
    for turn in range(1, turns):
        messages.append({"role": "assistant", "content": language.reply.format(n=turn) * sentences})
        words = language.request.format(n=turn)
        if turn in said:
            words = said[turn]
        messages.append({"role": "user", "content": words})
    return RuleTalk(name=name, window=window, messages=messages, wishes=wishes)
