"""Words with which people greet, thank, agree and take their leave, in the languages of the other tables.

In a small conversation they are as rare as the words of a question, but they are about nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Courtesy(NamedTuple):
    """`greets`: words beside which a single other word is a name, as in "Hello Dera"."""

    greets: str
    goes_along: str


COURTESY = {
    "English": Courtesy(
        "hello hi hey morning afternoon evening night thank thanks welcome bye goodbye",
        "good today tomorrow weekend how are is it it's that's i'm i've you you're your been doing going "
        "things well fine great nice cool wow amazing perfect excellent lovely much very so a lot help "
        "helps see soon later take care have had hope meet back keep the do pleasure please sorry ok "
        "okay alright right yes no not sure sounds sense makes got understood exactly problem all let me "
        "think there what up go on",
    ),
    "German": Courtesy(
        "hallo hi hey guten gute morgen tag abend nacht danke dank willkommen tschüss servus",
        "heute wochenende wie geht es dir ihnen euch alles gut schön schönen schöner toll super prima "
        "perfekt vielen sehr bitte gern freut mich für die hilfe auf wiedersehen bis bald später dann ok "
        "okay ja nein nicht klar verstanden genau einverstanden stimmt so das ist weiter",
    ),
    "French": Courtesy(
        "bonjour bonsoir salut coucou merci bienvenue",
        "bonne bon journée soirée nuit aujourd'hui demain comment ça va vas allez tu vous bien très "
        "beaucoup pour votre aide plaît s'il te rien enchanté super parfait excellent au revoir à "
        "bientôt plus tard pardon désolé ok d'accord oui non sûr compris entendu c'est noté",
    ),
    "Spanish": Courtesy(
        "hola buenos buenas gracias bienvenido bienvenida adiós",
        "día días tardes noches hoy mañana cómo está estás va todo qué tal muy bien muchas por tu su "
        "ayuda favor de nada encantado encantada gusto genial perfecto excelente hasta luego pronto "
        "vemos nos perdón vale ok sí no claro entendido acuerdo entiendo que tengas un buen",
    ),
    "Portuguese": Courtesy(
        "olá oi bom boa obrigado obrigada tchau adeus",
        "dia tarde noite manhã hoje amanhã como está estás vai tudo bem muito pela sua ajuda por favor "
        "de nada bem-vindo prazer ótimo perfeito excelente até logo breve mais desculpa ok sim não claro "
        "entendi entendido certo combinado",
    ),
    "Russian": Courtesy(
        "привет здравствуй здравствуйте доброе добрый доброй спасибо пока",
        "утро день вечер ночи сегодня завтра как дела ты вы у тебя вас всё все хорошо отлично прекрасно "
        "большое благодарю за помощь пожалуйста рад рада до свидания встречи скорой хорошего извини ок "
        "да нет ладно понял поняла понятно ясно конечно договорились согласен согласна",
    ),
    "Chinese": Courtesy(
        "你好 您好 早上好 早安 下午好 晚上好 晚安 谢谢 谢谢你 谢谢您 感谢 再见 拜拜",
        "大家好 今天 明天 怎么样 最近 还好吗 你好吗 很好 太好了 太棒了 非常 多谢 你的帮助 不客气 请 欢迎 "
        "高兴认识你 回头见 明天见 抱歉 好的 好 嗯 是的 没问题 明白了 知道了 了解 当然 同意",
    ),
    "Japanese": Courtesy(
        "こんにちは こんばんは おはようございます おやすみなさい ありがとうございます "
        "ありがとうございました さようなら",
        "お元気ですか 今日はいかが 明日 調子はどうですか どうもありがとう 助かりました お疲れ様です "
        "どういたしまして よろしくお願いします はじめまして またね また明日 では 失礼します すみません "
        "ごめんなさい はい いいえ わかりました 了解しました 承知しました なるほど そうですね いいですね "
        "大丈夫です",
    ),
    "Hindi": Courtesy(
        "नमस्ते नमस्कार हैलो सुप्रभात शुभ धन्यवाद शुक्रिया अलविदा",
        "रात्रि संध्या आज कल कैसे कैसी हैं हो आप तुम क्या हाल है सब ठीक अच्छा बढ़िया बहुत आपकी मदद के "
        "लिए आपका स्वागत कृपया फिर मिलेंगे माफ़ कीजिए हाँ हां जी नहीं बिल्कुल समझ गया गई",
    ),
    "Arabic": Courtesy(
        "مرحبا أهلا السلام صباح مساء شكرا وداعا",
        "يا وسهلا عليكم وعليكم الخير النور اليوم غدا تصبح على خير كيف حالك الحال بخير جيد ممتاز رائع "
        "جزيلا لك مساعدتك عفوا من فضلك إلى اللقاء أراك قريبا مع السلامة آسف نعم لا حسنا تمام فهمت مفهوم "
        "بالتأكيد موافق الحمد لله",
    ),
}
