"""The words by which rules and agreements are known, for the most spoken languages.

Each table is compiled when it is first asked for: most requests are never cut. `standing_rules` says what is
made of them.
"""

from __future__ import annotations

from functools import cache

from lamina.core.text.sentences import Phrases

RULES = {
    "English": "from now on | from here on | from this point | going forward, | moving forward, | "
    "henceforth | at all times | under no circumstances | without exception | until i say | "
    "until further notice | you must | you should | you shall | you may not | you need to | you have to | "
    "i want you to | i need you to | i expect you to | i'd like you to | i would like you to | "
    "i also want you to | i also need you to | i'd also like you to | important that you | "
    "crucial that you | essential that you | want to emphasize | want to stress | for the rest of | "
    "remember that i | keep in mind | bear in mind | please use | please keep | "
    "please avoid",
    "Spanish": "de ahora en adelante | a partir de ahora | desde ahora | en adelante | en lo sucesivo | "
    "bajo ninguna circunstancia | sin excepción | debes | tienes que | no uses | no toques | "
    "no utilices | no escribas | no hagas | no cambies | asegúrate | ten en cuenta | evita | "
    "deja de | responde en | contesta en | escribe en | usa siempre | solo usa | hasta que te diga | "
    "quiero que | quiero insistir | necesito que | me gustaría que | espero que | procura | intenta",
    "French": "désormais | dorénavant | à partir de maintenant | dès maintenant | "
    "en toutes circonstances | en aucun cas | sous aucun prétexte | sans exception | tu dois | "
    "vous devez | il faut | ne touche | n'utilise | n'utilisez | n'écris | n'écrivez | ne modifie | "
    "ne modifiez | ne fais | ne faites | assure-toi | assurez-vous | veille à | veillez à | "
    "rappelle-toi | souviens-toi | n'oublie pas | n'oubliez pas | garde en tête | évite | évitez | "
    "cesse de | arrête de | réponds en | répondez en | écris en | écrivez en | jusqu'à ce que je | "
    "je veux que | je tiens à souligner | j'aimerais que | je voudrais que | j'ai besoin que",
    "Portuguese": "de agora em diante | a partir de agora | daqui em diante | daqui para a frente | "
    "daqui pra frente | doravante | em hipótese alguma | em nenhuma circunstância | sem exceção | "
    "você precisa | não use | não uses | não toque | não toques | não mexa | não escreva | não faça | "
    "não altere | certifique-se | lembre-se | lembra-te | tenha em mente | evite | pare de | responda em | "
    "responde em | escreva em | até que eu diga | quero que | quero sublinhar | preciso que | "
    "gostaria que | espero que",
    "German": "ab jetzt | von jetzt an | von nun an | ab sofort | unter keinen umständen | "
    "auf keinen fall | ausnahmslos | ohne ausnahme | du musst | sie müssen | du sollst | du darfst | "
    "darfst nicht | achte darauf | achten sie | stelle sicher | stell sicher | denk daran | denke daran | "
    "vergiss nicht | merk dir | merke dir | vermeide | vermeiden sie | hör auf | antworte auf | "
    "antworten sie auf | schreibe auf | bis ich | ich möchte betonen | ich möchte, dass | ich will, dass | "
    "ich erwarte, dass | bitte immer | bitte nie",
    "Indonesian": "jangan | jangan pernah | mulai sekarang | mulai saat ini | dari sekarang | "
    "tanpa kecuali | secara default | wajib | dilarang | tidak boleh | pastikan | ingat bahwa | "
    "ingatlah | hindari | jawab dalam | jawablah dalam | tulis dalam | sampai saya | saya ingin anda | "
    "saya ingin kamu | saya mau anda | saya mau kamu | aku mau kamu | tolong selalu",
    "Russian": "отныне | впредь | с этого момента | с этого времени | с сегодняшнего дня | "
    "с данного момента | ни в коем случае | ни при каких | без исключений | без исключения | не используй | "
    "не используйте | не трогай | не трогайте | не пиши | не пишите | не меняй | не меняйте | не делай | "
    "не делайте | убедись | убедитесь | помни | помните | запомни | запомните | имей в виду | "
    "имейте в виду | избегай | избегайте | перестань | отвечай | отвечайте | пиши на | пишите на | "
    "пока я не | хочу подчеркнуть | хочу, чтобы | хочу чтобы | нужно, чтобы | прошу тебя | прошу вас",
    "Hindi": "कभी मत | अब से | आगे से | किसी भी हालत में | किसी भी स्थिति में | बिना अपवाद | अनिवार्य | "
    "याद रखें | याद रखना | याद रखो | ध्यान रखें | ध्यान रखना | ध्यान रखो | सुनिश्चित | मत | न करें | "
    "नहीं करना | से बचें | में जवाब | में उत्तर | में लिखें | चाहता हूँ कि | चाहती हूँ कि | "
    "चाहता हूं कि | चाहती हूं कि",
    "Bengali": "এখন থেকে | এরপর থেকে | এখন হতে | কোনো অবস্থাতেই | কোনও অবস্থাতেই | বাধ্যতামূলক | "
    "মনে রাখবেন | মনে রেখো | মনে রাখুন | খেয়াল রাখবেন | নিশ্চিত করুন | নিশ্চিত করো | করবেন না | "
    "করবে না | করো না | কোরো না | হাত দেবেন না | এড়িয়ে চল | উত্তর দেবেন | উত্তর দেবে | উত্তর দিন | "
    "লিখবেন | চাই যে | চাই আপনি | চাই তুমি",
    "Arabic": "من الآن فصاعدا | من الآن فصاعدًا | من الآن فصاعداً | من الآن | منذ الآن | ابتداء من الآن | "
    "بعد الآن | بأي حال | تحت أي ظرف | بدون استثناء | بلا استثناء | افتراضيا | عليك أن | عليك ألا | "
    "ممنوع | لا تستخدم | لا تلمس | لا تكتب | لا تغير | لا تعدل | لا تفعل | لا تقم | تأكد | احرص | تذكر | "
    "تذكّر | ضع في اعتبارك | تجنب | تجنّب | توقف عن | أجب | اكتب ب | التزم | أريدك أن | أريد منك | "
    "أريد أن تكون | أريد أن تكتب",
    "Urdu": "کبھی مت | اب سے | آئندہ | اس کے بعد سے | کسی بھی صورت | کسی صورت | کسی بھی حال | "
    "بلا استثنا | لازمی | لازماً | یاد رکھیں | یاد رکھو | یاد رکھنا | خیال رکھیں | دھیان رکھیں | "
    "یقینی بنائیں | مت | نہ کریں | نہ کرنا | سے گریز | سے بچیں | میں جواب | میں لکھیں | چاہتا ہوں کہ | "
    "چاہتی ہوں کہ",
    "Chinese": "一律 | 务必 | 必须 | 从现在起 | 从现在开始 | 从今以后 | 无论如何 | 任何情况下 | 绝不 | "
    "绝对不 | 决不 | 永不 | 不要 | 不得 | 不许 | 不准 | 禁止 | 切勿 | 请勿 | 别再 | 千万别 | 记住 | "
    "请记得 | 牢记 | 确保 | 避免 | 只能 | 只用 | 務必 | 必須 | 從現在起 | 從現在開始 | 從今以後 | "
    "無論如何 | 絕不 | 絕對不 | 請勿 | 記住 | 確保 | 回答时 | 用中文 | 用英文 | 用英语 | 我要你 | "
    "我希望你 | 我想让你 | 我想强调 | 我想要你 | 我要求 | 我希望您",
    "Japanese": "これ以降 | どんな場合も | いかなる場合 | しないで | 使わないで | 触らないで | "
    "書かないで | 変えないで | しないこと | してはいけ | てはならない | てはいけません | ないでください | "
    "禁止 | 覚えておいて | 忘れないで | 注意して | 徹底 | 避けて | べき | なければならない | "
    "てください。ただし | てほしい | て欲しい | てください | なさい",
}
"""Words that make a sentence a rule, by language."""

HABITS = {
    "Spanish": "siempre | nunca | jamás | en todo momento | cada vez que | por defecto | "
    "por regla general | hay que | debe | deben | recuerda",
    "French": "toujours | jamais | en tout temps | chaque fois que | à chaque fois | par défaut | "
    "en règle générale | à l'avenir",
    "Portuguese": "sempre | nunca | jamais | em todos os momentos | toda vez que | sempre que | "
    "por padrão | via de regra | deve | deves | devem | tem que",
    "German": "immer | stets | niemals | nie | nie wieder | künftig | in zukunft | jederzeit | "
    "jedes mal | jedesmal | grundsätzlich | standardmäßig | muss | müssen",
    "Indonesian": "selalu | tidak pernah | ke depannya | seterusnya | setiap kali | setiap saat | harus | "
    "berhenti",
    "Russian": "всегда | никогда | в дальнейшем | в будущем | каждый раз | по умолчанию | как правило | "
    "должен | должна | должны | нужно | обязательно | нельзя",
    "Hindi": "हमेशा | सदैव | सदा | कभी नहीं | कभी भी | भविष्य में | हर बार | प्रत्येक बार | जब भी | "
    "ज़रूर | जरूर | अवश्य | चाहिए | इसके बाद | आज से",
    "Bengali": "সবসময় | সব সময় | সর্বদা | কখনো | কখনোই | কখনও | ভবিষ্যতে | প্রতিবার | প্রত্যেকবার | "
    "যখনই | অবশ্যই | আজ থেকে",
    "Arabic": "دائما | دائمًا | دائماً | أبدا | أبدًا | أبداً | في المستقبل | مستقبلا | في كل مرة | "
    "كلما | مهما كان | يجب | ينبغي | لا بد",
    "Urdu": "ہمیشہ | ہمیشہ کے لیے | کبھی نہیں | کبھی بھی | آج سے | مستقبل میں | ہر بار | ہر دفعہ | "
    "جب بھی | ضرور | چاہیے | چاہئے",
    "Chinese": "总是 | 始终 | 永远 | 一直 | 从此 | 今后 | 以后 | 往后 | 每次 | 每当 | 每一次 | 默认 | "
    "应该 | 應該 | 應 | 總是 | 始終 | 永遠 | 今後 | 以後 | 每當 | 從此 | 預設 | 记得 | 記得",
    "Japanese": "いつも | 常に | 必ず | 決して | 絶対に | 絶対 | 今後 | これから | 今から | 以後 | 以降 | "
    "毎回 | たびに | 度に | デフォルトで",
}
"""Words that make a sentence a rule unless it tells of somebody, by language: `siempre`, `nie`, `всегда`."""

SUBJECTS = {
    "English": "i | he | she | they | we | who",
    "Spanish": "yo | él | ella | ellos | ellas | nosotros | nosotras | eso | esto",
    "French": "je | j' | il | elle | ils | elles | nous",
    "Portuguese": "eu | ele | ela | eles | elas | nós",
    "German": "ich | er | wir",
    "Indonesian": "saya | aku | kami | dia | ia | mereka | kita",
    "Russian": "я | он | она | они | мы | мне",
    "Hindi": "मैं | मैंने | हम | हमने | वह | वो | वे | उसने | उन्होंने",
    "Bengali": "আমি | আমরা | সে | তারা | তিনি",
    "Arabic": "أنا | نحن | هو | هي | هم",
    "Urdu": "ہم | ہم نے | میں نے | وہ | اس نے | انہوں نے",
    "Chinese": "我 | 我们 | 他 | 她 | 它 | 他们 | 她们 | 大家 | 人们 | 我們 | 他們 | 她們 | 人們",
    "Japanese": "私は | 僕は | 俺は | 彼は | 彼女は | 私たちは | みんなは",
}
"""Words of which something is told if they stand before one of those: `yo siempre como aquí`, `我一直住这里`.
Behind it, they may be whom an order is about: `selalu panggil saya Budi`."""

TOLD_VERBS = {
    "Spanish": "he | ha | han | hemos | había | habían | era | eran | fue | fui | soy | somos | estoy | "
    "estaba | tengo | tenía | voy | iba | suelo",
    "French": "ai | avons | était | étaient | étais | avait | avaient | avais | suis",
    "Portuguese": "fui | foi | era | eram | sou | somos | estou | estava | tenho | tinha | vou | ia | "
    "costumo",
    "German": "ich | war | waren | habe | hatte | hatten | bin | wurde",
    "Russian": "был | была | было | были",
    "Hindi": "था | थी | थे | हूँ | हूं",
    "Bengali": "ছিল | ছিলাম | ছিলেন",
    "Arabic": "كنت | كان | كانت | كانوا | كنا",
    "Urdu": "تھا | تھی | تھے | ہوں",
    "Japanese": "ました | でした | ます。 | です。 | だった",
}
"""Verbs by which the clause tells, wherever they stand: `siempre he vivido aquí`, `es war nie so`."""

ORDERS = (
    "always | never | do not | don't | dont | must | mustn't | remember to | remember that | stick to | "
    "stick with | only ever | avoid | refrain from | stop using | stop doing | only answer | only use | "
    "only reply | only write | answer in | reply in | respond in | write in | in future | every time | "
    "each time | whenever | as a rule | by default | unless i"
)
"""English words that make a rule where they are said to somebody. `I always …` only tells of a habit."""

CONDITIONS = frozenset(
    ("in future", "every time", "each time", "whenever", "as a rule", "by default", "unless i")
)
"""Those of them that say when a rule holds, and need an order beside them."""

LEADS = frozenset(
    "please just and but so then also now kindly ok okay hey well first second third next likewise "
    "again to instead".split()
)
"""English words that may stand before an order in its clause."""

MODALS = frozenset("should must shall may can could ought need have".split())
"""English words after which `always` and `never` demand something, unless it is of the speaker."""

VERBS = frozenset(
    "add answer append apply ask begin call check choose cite comment commit compute create define delete "
    "document end ensure explain follow format generate give highlight import include indent keep leave list "
    "log make mark mention name never open output prefer prefix print provide push put quote replace reply "
    "report respond return round run save send show sign skip speak spell start state stay store summarise "
    "summarize tell test translate treat use validate verify wrap write always do don't avoid".split()
)
"""English verbs with which orders begin: `Format dates always as 2026-11-17`."""

OTHERS = frozenset(
    "i i've i'd i'm i'll he he's she she's they they're we we've we'd we're who people everyone everybody "
    "nobody".split()
)
"""English words of which something is told, and not demanded."""

ASKED_BEFORE = frozenset(
    "what where when if how why whether whatever wherever whenever because since once everything all "
    "anything sometimes which think sure maybe that".split()
)
"""English words before `you need to` and its like by which it is no demand: `what you need to do`."""

SCOPES = {
    "English": "all | every | each | whenever | consistently | convention* | guideline* | policy | practice",
    "Spanish": "todos los | todas las | todo | toda | cada | cuando | norma | regla",
    "French": "tous les | toutes les | tout | toute | chaque | quand tu | quand vous | si tu | si vous | "
    "règle",
    "Portuguese": "todos os | todas as | todo | toda | cada | quando | regra",
    "German": "alle | allen | aller | jede | jedem | jeden | jeder | jedes | sämtliche | wenn du | "
    "wenn sie | falls du | regel",
    "Indonesian": "semua | setiap | tiap | ketika | jika | kalau",
    "Russian": "все | всех | всем | кажд* | люб* | когда | если | правило",
    "Hindi": "सभी | हर | प्रत्येक | सारे | सारी | जब | अगर | यदि",
    "Bengali": "সব | সকল | প্রতিটি | প্রত্যেক | যখন | যদি",
    "Arabic": "كل | لكل | جميع | أي | عندما | إذا",
    "Urdu": "تمام | ہر | سب | جب | اگر",
    "Chinese": "所有 | 每 | 凡 | 全部 | 任何 | 时， | 的时候 | 如果 | 规则",
    "Japanese": "すべて | 全て | 各 | どの | ときは | 時は | 場合は | ルール",
}
"""Words that say for what a demand holds, by language: for all of something, or whenever something is so."""

DEMANDS = {
    "English": "should | need to | needs to | have to | has to | is to | are to | it's important to | "
    "it is important to | it's crucial to | it's essential to | important that | want all | "
    "want every | want each | like all | like every | like each",
    "Spanish": "debería | deberían | tiene que | tienen que | por favor | es importante | usa | use | "
    "utiliza | escribe | pon | ponga | añade | añada | agrega | empieza | termina | nombra | haz | "
    "comprueba | quisiera | quiero",
    "French": "doit | doivent | devrait | devraient | merci de | merci d'* | s'il te plaît | "
    "s'il vous plaît | il est important | utilise | utilisez | écris | écrivez | mets | mettez | ajoute | "
    "ajoutez | commence | commencez | termine | terminez | nomme | nommez | fais | faites | vérifie | "
    "j'aimerais | je voudrais | je veux",
    "Portuguese": "deveria | deveriam | por favor | é importante | garante | garanta | usa | use | utiliza | "
    "escreve | escreva | põe | ponha | coloca | coloque | acrescenta | acrescente | adiciona | adicione | "
    "começa | comece | termina | termine | faz | faça | queria | gostaria",
    "German": "soll | sollen | sollte | sollten | bitte | wichtig | sorge | nutze | benutze | verwende | "
    "schreib | schreibe | nimm | setze | füge | gib | nenne | beginne | beende | halte | prüfe | "
    "ich hätte gern | ich möchte | ich will",
    "Indonesian": "tolong | sebaiknya | penting | gunakan | pakai | tulis | tulislah | tambahkan | mulai | "
    "akhiri | beri",
    "Russian": "пожалуйста | важно | следи | следите | хотелось бы | ставь | ставьте | пиши | пишите | "
    "указывай | указывайте | добавляй | добавляйте | используй | используйте | начинай | начинайте | "
    "называй | называйте | проверяй | проверяйте | делай | делайте",
    "Hindi": "कृपया | ज़रूरी | जरूरी | लिखें | लिखो | जोड़ें | जोड़ो | रखें | रखो | करें | करो | ध्यान दें | "
    "चाहूँगा | चाहूंगा | चाहूँगी | चाहूंगी",
    "Bengali": "দয়া করে | অনুগ্রহ করে | উচিত | জরুরি | লিখুন | ব্যবহার করুন | যোগ করুন | শুরু করুন | শেষ করুন",
    "Arabic": "من فضلك | من المهم | اجعل | اكتب | استخدم | استعمل | أضف | ضع | ابدأ | تحقق | أود | أريد | "
    "أرجو",
    "Urdu": "براہ کرم | ضروری | لکھیں | استعمال کریں | شامل کریں | رکھیں | شروع کریں | ختم کریں",
    "Chinese": "请 | 要 | 须 | 保证 | 希望 | 重要 | 附上 | 先写 | 先用 | 使用",
    "Japanese": "こと。 | 大切です | 重要です | 必要です | 助かります | お願いします",
}
"""Words by which something is demanded, by language. Beside a scope they make a rule, and alone they ask for
something once: `bitte füge jedem Bericht eine Zusammenfassung hinzu`."""

CONDITION_STARTS = frozenset("when whenever while if for before after".split())
"""English words with which a clause begins that says when an order holds: `When naming classes, use …`."""

NO_CONDITION = frozenset("now example instance that this".split())
"""English words behind `for` that say nothing of the kind."""

REPLACING = (
    "instead | from now on | no longer | not anymore | anymore | change that | changed my mind | "
    "forget | ignore | scratch that | rather than | switch to | actually | correction | en lugar | "
    "en vez | ya no | de ahora en adelante | a partir de ahora | olvida | cambia | en realidad | "
    "désormais | dorénavant | à partir de maintenant | au lieu | plutôt | oublie | ne plus | "
    "finalement | de agora em diante | a partir de agora | em vez | ao invés | não mais | já não | "
    "esqueça | na verdade | ab jetzt | ab sofort | von jetzt an | von nun an | künftig | statt | "
    "stattdessen | nicht mehr | vergiss | doch | mulai sekarang | sebagai gantinya | tidak lagi | "
    "bukan lagi | lupakan | отныне | впредь | с этого момента | вместо | больше не | теперь | забудь | "
    "अब से | आगे से | के बजाय | की बजाय | की जगह | अब नहीं | भूल जा | এখন থেকে | এরপর থেকে | বদলে | "
    "পরিবর্তে | আর নয় | ভুলে যা | من الآن | بدلا من | بدلًا من | بدلاً من | بعد الآن | لم يعد | انس | "
    "اب سے | آئندہ | کے بجائے | کی بجائے | کی جگہ | بھول جا | 从现在起 | 从现在开始 | 从今以后 | 今后 | "
    "以后 | 改为 | 改成 | 改用 | 不再 | 而不是 | 忘掉 | 從現在起 | 從現在開始 | 改為 | 今後 | "
    "これから | 今から | 代わりに | ではなく | やめて | 忘れて"
)
"""Words with which a later rule replaces an earlier one."""

AGREED = (
    "yes | yes please | yeah | yep | ok | okay | sure | agreed | sounds good | go ahead | do it | "
    "perfect | great | fine | that works | works for me | good idea | exactly | let's do | approved | "
    "lgtm | sí | si | vale | de acuerdo | adelante | perfecto | claro | oui | d'accord | parfait | "
    "vas-y | allez-y | ça marche | sim | certo | pode ser | combinado | perfeito | de acordo | ja | "
    "einverstanden | gut | passt | mach das | genau | ya | setuju | baik | lanjutkan | да | хорошо | "
    "ладно | согласен | согласна | давай | отлично | हाँ | हां | ठीक है | सहमत | ज़रूर | হ্যাঁ | "
    "ঠিক আছে | রাজি | نعم | حسنا | حسنًا | موافق | تمام | ہاں | جی ہاں | ٹھیک ہے | متفق | 好 | 好的 | "
    "可以 | 行 | 同意 | 没问题 | 就这样 | 是的 | はい | いいです | お願いします | 了解 | 賛成 | それで"
)
"""Words with which an answer begins that accepts what was proposed."""


# The tables as they are looked for.


@cache
def rules() -> Phrases:
    """Words that make a sentence a rule."""
    return Phrases(" | ".join(RULES.values()))


@cache
def habits() -> Phrases:
    """Words that make a rule, unless the clause only tells of a habit."""
    return Phrases(" | ".join(HABITS.values()))


@cache
def subjects() -> Phrases:
    """Of whom a clause tells."""
    return Phrases(" | ".join(SUBJECTS.values()))


@cache
def told_verbs() -> Phrases:
    """Verbs by which a clause tells."""
    return Phrases(" | ".join(TOLD_VERBS.values()))


@cache
def orders() -> Phrases:
    """English words that make a rule where they are said to somebody."""
    return Phrases(ORDERS)


@cache
def scopes() -> Phrases:
    """Words that say for what a demand holds."""
    return Phrases(" | ".join(SCOPES.values()))


@cache
def demands() -> Phrases:
    """Words by which something is demanded."""
    return Phrases(" | ".join(DEMANDS.values()))


@cache
def replacing() -> Phrases:
    """Words with which a later rule replaces an earlier one."""
    return Phrases(REPLACING)


@cache
def agreements() -> Phrases:
    """Words with which an answer accepts what was proposed."""
    return Phrases(AGREED)
