"""What a user said that holds from then on: standing rules, and wishes, corrections and decisions.

A rule says how to work from now on (`always …`, `never …`, `from now on …`). A wish says what the user
prefers, has chosen or corrects (`I prefer …`, `call me …`, `I meant …`). Both are known by tables of words,
for the most spoken languages; no model is asked. The tables would rather take a sentence too many: one that
is kept costs a line, one that is missed is lost without anybody's knowing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple

from lamina.core.text.characters import (
    ALPHANUMERIC,
    WHITE_SPACE,
    fold_case,
    is_blank,
    split_words,
    with_newlines,
)

Weight = Literal["rule", "wish", ""]

_RULES = {
    "English": "from now on | from here on | from this point | going forward, | moving forward, | "
    "henceforth | at all times | under no circumstances | without exception | until i say | "
    "until further notice | you must | you should | you shall | you may not | you need to | you have to | "
    "i want you to | i need you to | i expect you to | i'd like you to | i would like you to | "
    "for the rest of | remember that i | keep in mind | bear in mind | please use | please keep | "
    "please always | please never | please don't | please do not | please avoid",
    "Spanish": "de ahora en adelante | a partir de ahora | desde ahora | en adelante | en lo sucesivo | "
    "bajo ninguna circunstancia | sin excepción | debes | tienes que | no uses | no toques | "
    "no utilices | no escribas | no hagas | no cambies | asegúrate | recuerda | ten en cuenta | evita | "
    "deja de | responde en | contesta en | escribe en | usa siempre | solo usa | hasta que te diga | "
    "quiero que | necesito que | me gustaría que | espero que | procura | intenta",
    "French": "désormais | dorénavant | à partir de maintenant | dès maintenant | "
    "en toutes circonstances | en aucun cas | sous aucun prétexte | sans exception | tu dois | "
    "vous devez | il faut | ne touche | n'utilise | n'utilisez | n'écris | n'écrivez | ne modifie | "
    "ne modifiez | ne fais | ne faites | assure-toi | assurez-vous | veille à | veillez à | "
    "rappelle-toi | souviens-toi | n'oublie pas | n'oubliez pas | garde en tête | évite | évitez | "
    "cesse de | arrête de | réponds en | répondez en | écris en | écrivez en | jusqu'à ce que je | "
    "je veux que | j'aimerais que | je voudrais que | j'ai besoin que",
    "Portuguese": "de agora em diante | a partir de agora | daqui em diante | daqui para a frente | "
    "daqui pra frente | doravante | em hipótese alguma | em nenhuma circunstância | sem exceção | "
    "você precisa | não use | não uses | não toque | não toques | não mexa | não escreva | não faça | "
    "não altere | certifique-se | lembre-se | lembra-te | tenha em mente | evite | pare de | "
    "responda em | responde em | escreva em | até que eu diga | quero que | preciso que | gostaria que | "
    "espero que",
    "German": "ab jetzt | von jetzt an | von nun an | ab sofort | unter keinen umständen | "
    "auf keinen fall | ausnahmslos | ohne ausnahme | du musst | sie müssen | du sollst | du darfst | "
    "darfst nicht | achte darauf | achten sie | stelle sicher | stell sicher | denk daran | denke daran | "
    "vergiss nicht | merk dir | merke dir | vermeide | vermeiden sie | hör auf | antworte auf | "
    "antworten sie auf | schreibe auf | bis ich | ich möchte, dass | ich will, dass | ich erwarte, dass | "
    "bitte immer | bitte nie",
    "Indonesian": "jangan | jangan pernah | mulai sekarang | mulai saat ini | dari sekarang | "
    "tanpa kecuali | secara default | wajib | dilarang | tidak boleh | pastikan | ingat bahwa | "
    "ingatlah | hindari | jawab dalam | jawablah dalam | tulis dalam | sampai saya | saya ingin anda | "
    "saya ingin kamu | saya mau anda | saya mau kamu | aku mau kamu | tolong selalu",
    "Russian": "отныне | впредь | с этого момента | с этого времени | с сегодняшнего дня | "
    "с данного момента | ни в коем случае | ни при каких | без исключений | без исключения | "
    "не используй | не используйте | не трогай | не трогайте | не пиши | не пишите | не меняй | "
    "не меняйте | не делай | не делайте | убедись | убедитесь | помни | помните | запомни | запомните | "
    "имей в виду | имейте в виду | избегай | избегайте | перестань | отвечай | отвечайте | пиши на | "
    "пишите на | пока я не | хочу, чтобы | хочу чтобы | нужно, чтобы | прошу тебя | прошу вас",
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
    "我希望你 | 我想让你 | 我想要你 | 我要求 | 我希望您",
    "Japanese": "これ以降 | どんな場合も | いかなる場合 | しないで | 使わないで | 触らないで | "
    "書かないで | 変えないで | しないこと | してはいけ | てはならない | てはいけません | ないでください | "
    "禁止 | 覚えておいて | 忘れないで | 注意して | 徹底 | 避けて | べき | なければならない | "
    "てください。ただし | てほしい | て欲しい | てください | なさい",
}
"""Words that make a sentence a rule, by language."""

_HABITS = {
    "Spanish": "siempre | nunca | jamás | en todo momento | cada vez que | por defecto | "
    "por regla general | hay que | debe | deben",
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

_SUBJECTS = {
    "Spanish": "yo | él | ella | ellos | ellas | nosotros | nosotras",
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

_TOLD_VERBS = {
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

_ORDERS = (
    "always | never | do not | don't | dont | must | mustn't | remember to | remember that | stick to | "
    "stick with | only ever | avoid | refrain from | stop using | stop doing | only answer | only use | "
    "only reply | only write | answer in | reply in | respond in | write in | in future | every time | "
    "each time | whenever | as a rule | by default | unless i"
)
"""English words that make a rule where they are said to somebody. `I always …` only tells of a habit."""

_CONDITIONS = frozenset(
    ("in future", "every time", "each time", "whenever", "as a rule", "by default", "unless i")
)
"""Those of them that say when a rule holds, and need an order beside them."""

_LEADS = frozenset(
    "please just and but so then also now kindly ok okay hey well first again to instead".split()
)
"""English words that may stand before an order in its clause."""

_MODALS = frozenset("should must shall may can could ought need have".split())
"""English words after which `always` and `never` demand something, unless it is of the speaker."""

_VERBS = frozenset(
    "add answer append ask begin call check cite comment commit compute create delete document end explain "
    "format generate give highlight include indent keep leave list log make mark mention name never open "
    "output prefer prefix print provide push put quote reply report respond return round run save send show "
    "sign skip speak spell start state stay store summarise summarize tell test translate treat use validate "
    "verify wrap write always do don't avoid".split()
)
"""English verbs with which orders begin: `Format dates always as 2026-11-17`."""

_OTHERS = frozenset(
    "i i've i'd i'm i'll he he's she she's they they're we we've we'd we're who people everyone everybody "
    "nobody".split()
)
"""English words of which something is told, and not demanded."""

_TOLD = re.compile(
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

_ASKED_BEFORE = frozenset(
    "what where when if how why whether whatever wherever whenever because since once everything all "
    "anything sometimes which think sure maybe that".split()
)
"""English words before `you need to` and its like by which it is no demand: `what you need to do`."""

_AND_BEFORE = re.compile(r"(?<![a-z])(?:and|but)(?: also| then| just)? $")

_DEMANDS = re.compile(r"you (?:need to|have to|should|must|shall)")

_CLAUSE_END = re.compile("[,;:.!?()،؛؟।۔\uff0c\uff1b\uff1a\u3002\uff01\uff1f]")

_NEAR = 4
"""Letters before a word in a script without spaces among which its subject stands: `我们也总是`."""

_CLAUSE_START = re.compile(
    r"[,;:.!?()—–\"]| - |(?<![a-z])(?:and|but|so|please|then|or|because|also|that you)(?![a-z])"
)

_WISHES = {
    "English": "prefer | prefers | preferred | preference | i'd rather | i would rather | i hate | "
    "i dislike | i can't stand | my favorite | my favourite | call me | address me | my name is | "
    "i go by | i decided | i've decided | i have decided | we decided | we've decided | i chose | "
    "i've chosen | i have chosen | we chose | i opted | i've opted | i no longer | not anymore | "
    "i meant | correction | that is wrong | that's wrong | not what i | scratch that | forget what | "
    "changed my mind | i am allergic | i'm allergic | i am vegetarian | i'm vegetarian | i'm vegan | "
    "i am vegan | let's use | let us use | we will use | we'll use | i aim for | i aim to | my goal is | "
    "our goal is",
    "Spanish": "prefiero | preferimos | me gusta | me encanta | no me gusta | odio | preferiría | "
    "quisiera | me gustaría | llámame | mi nombre es | me llamo | he decidido | decidí | decidimos | "
    "elegí | he elegido | quiero | necesito | en lugar de | en vez de | ya no | mejor dicho | "
    "quise decir | corrección | en realidad | mi favorito | mi favorita | soy alérgic | "
    "soy vegetarian | cambié de opinión | mi objetivo es",
    "French": "je préfère | nous préférons | préférer | j'aime | j'adore | je n'aime pas | je déteste | "
    "je voudrais | j'aimerais | appelle-moi | appelez-moi | je m'appelle | mon nom est | j'ai décidé | "
    "nous avons décidé | j'ai choisi | je veux | j'ai besoin | au lieu de | plutôt que | plutôt | "
    "ne plus | je voulais dire | correction | en fait | mon préféré | ma préférée | allergique | "
    "végétarien | changé d'avis | mon objectif est | je vise",
    "Portuguese": "prefiro | preferimos | gosto de | adoro | não gosto | odeio | preferiria | "
    "gostaria | me chame | chame-me | chama-me | meu nome é | o meu nome é | me chamo | chamo-me | "
    "decidi | decidimos | escolhi | quero | preciso | em vez de | ao invés de | já não | não mais | "
    "quis dizer | correção | na verdade | meu favorito | minha favorita | alérgic | vegetarian | "
    "mudei de ideia | meu objetivo é",
    "German": "bevorzuge | bevorzugen | ziehe vor | lieber | ich mag | ich liebe | ich hasse | "
    "ich hätte gern | ich möchte | nenn mich | nennen sie mich | ich heiße | mein name ist | "
    "ich habe entschieden | ich habe mich entschieden | wir haben entschieden | ich habe gewählt | "
    "ich will | ich brauche | statt | anstatt | stattdessen | nicht mehr | ich meinte | ich meine | "
    "korrektur | eigentlich | mein lieblings | meine lieblings | allergisch | vegetarier | veganer | "
    "anders überlegt | mein ziel ist | ich strebe",
    "Indonesian": "lebih suka | saya suka | aku suka | saya benci | tidak suka | panggil saya | "
    "panggil aku | nama saya | namaku | saya memutuskan | kami memutuskan | saya memilih | saya ingin | "
    "saya butuh | sebagai gantinya | daripada | bukan lagi | tidak lagi | maksud saya | koreksi | "
    "sebenarnya | favorit | alergi | berubah pikiran | tujuan saya",
    "Russian": "предпочитаю | предпочитаем | предпочёл бы | предпочел бы | мне нравится | я люблю | "
    "не люблю | ненавижу | хотел бы | хотела бы | зови меня | зовите меня | называй меня | "
    "называйте меня | меня зовут | моё имя | мое имя | я решил | я решила | мы решили | я выбрал | "
    "я выбрала | я хочу | мне нужно | мне нужен | вместо | больше не | уже не | я имел в виду | "
    "я имела в виду | исправление | на самом деле | лучше | любимый | любимая | аллерги | вегетариан | "
    "передумал | моя цель",
    "Hindi": "पसंद | पसन्द | प्राथमिकता | बेहतर लगता | मुझे बुलाओ | मुझे बुलाएं | मुझे कहें | "
    "मेरा नाम | तय किया | फैसला किया | निर्णय लिया | चुना है | चुनी है | चाहता हूँ | चाहती हूँ | "
    "चाहता हूं | चाहती हूं | के बजाय | की बजाय | की जगह | के स्थान पर | अब नहीं | मेरा मतलब | सुधार | "
    "दरअसल | असल में | एलर्जी | शाकाहारी | मेरा लक्ष्य",
    "Bengali": "পছন্দ | অপছন্দ | ভালোবাসি | আমাকে ডাক | আমার নাম | সিদ্ধান্ত নিয়েছি | ঠিক করেছি | "
    "বেছে নিয়েছি | চাই | দরকার | বদলে | পরিবর্তে | আর নয় | আর না | মানে আমি | সংশোধন | আসলে | "
    "অ্যালার্জি | নিরামিষ | আমার লক্ষ্য",
    "Arabic": "أفضل | أفضّل | نفضل | أحب | أكره | لا أحب | أود | أريد | أحتاج | نادني | ناديني | اسمي | "
    "قررت | قررنا | اخترت | بدلا من | بدلًا من | بدلاً من | عوضا عن | لم أعد | لم يعد | أقصد | قصدت | "
    "تصحيح | في الواقع | المفضل | المفضلة | حساسية | نباتي | هدفي",
    "Urdu": "پسند | ناپسند | ترجیح | مجھے بلائیں | مجھے کہیں | میرا نام | فیصلہ کیا | طے کیا | چنا ہے | "
    "منتخب کیا | چاہتا ہوں | چاہتی ہوں | کے بجائے | کی بجائے | کی جگہ | اب نہیں | میرا مطلب | تصحیح | "
    "دراصل | اصل میں | الرجی | سبزی خور | میرا مقصد",
    "Chinese": "喜欢 | 更喜欢 | 偏好 | 偏爱 | 倾向于 | 讨厌 | 希望 | 想要 | 叫我 | 称呼我 | 我的名字 | "
    "我叫 | 决定 | 选择了 | 选了 | 需要 | 而不是 | 而非 | 改为 | 改成 | 改用 | 不再 | 我的意思 | 更正 | "
    "纠正 | 其实 | 实际上 | 最爱 | 过敏 | 素食 | 宁愿 | 喜歡 | 偏愛 | 稱呼我 | 決定 | 選擇 | 改為 | "
    "我的意思是 | 糾正 | 其實 | 我的目标 | 我的目標",
    "Japanese": "好き | 好み | 嫌い | 希望 | したい | と呼んで | 私の名前 | と申します | 決めました | "
    "決めた | 選びました | 選んだ | ほしい | 欲しい | 代わりに | ではなく | じゃなくて | もう使わない | "
    "やめて | つまり | 訂正 | 実は | 実際 | お気に入り | アレルギー | ベジタリアン | 目指して",
}
"""Words that make a sentence a wish, a correction or a decision, by language."""

_REPLACING = (
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

_AGREED = (
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

LONGEST_AGREEMENT = 120
"""Characters of a message that can be no more than an acceptance. A longer one says something of its own."""

LONGEST_STATEMENT, LONGEST_WISH = 400, 240
"""Characters of one rule, and of one wish, that are kept. Of a longer one, the part around its word is."""

SHORTEST_CLAUSE = 60
"""Characters of a clause that may stay without the rest of its sentence."""

# Every match begins with one of a few characters, so that the search passes quickly over the rest: results of
# tools are split too, and most of them are code. The group is what parts two sentences: `. ` has it after its
# stop, and a break of lines is one as a whole.
_SENTENCE = re.compile(
    f"[.!?؟।۔。！？\n](?:(?<=[.!?؟।۔])([{WHITE_SPACE}\"'”’)\\]]+)|(?<=[。！？])([\"'”’」』）]*)|(?<=\n)\n*)"
)
_COMMA = re.compile(f"[,;:،؛，；、—–]+[{WHITE_SPACE}]*|(?<![{WHITE_SPACE}])[{WHITE_SPACE}]+-[{WHITE_SPACE}]+")


class Statement(NamedTuple):
    """One sentence of a message: where it stands, and whether it is a rule, a wish, or neither."""

    start: int
    end: int
    text: str
    weight: Weight


def find_statements(text: str) -> Iterator[Statement]:
    """The sentences of a text, each with its weight.

    `Always use tabs. Is that clear?` has a rule and a sentence without weight.
    """
    for sentence in split_sentences(text):
        yield sentence._replace(weight=weigh_sentence(sentence.text))


def split_sentences(text: str) -> Iterator[Statement]:
    """The sentences of a text, none of them weighed."""
    text = with_newlines(text)
    start = 0
    ends = [match.span(match.lastindex or 0) for match in _SENTENCE.finditer(text)]
    for end, next_start in [*ends, (len(text), len(text))]:
        sentence = text[start:end].strip(WHITE_SPACE)
        if sentence:
            yield Statement(start, end, sentence, "")
        start = next_start


def split_clauses(statement: Statement) -> Iterator[Statement]:
    """The clauses of a long sentence without weight; any other statement as it is.

    People tell the fact at the end: `it should fit, though I had to move the oven, since my counter is only
    24 inches deep`. If such a sentence were shortened as a whole, its end would be lost.
    """
    if statement.weight or len(statement.text) < 2 * SHORTEST_CLAUSE:
        yield statement
        return
    text = statement.text
    start = 0
    for match in _COMMA.finditer(text):
        is_long_enough = match.start() - start >= SHORTEST_CLAUSE
        if is_long_enough and len(text) - match.end() >= SHORTEST_CLAUSE:
            yield _cut_out(statement, start, match.end())
            start = match.end()
    yield _cut_out(statement, start, len(text))


def _cut_out(statement: Statement, start: int, end: int) -> Statement:
    """A part of a statement, as a statement of its own. The comma at its end belongs to it."""
    first = statement.start + start
    text = statement.text[start:end].strip(WHITE_SPACE)
    return Statement(first, first + end - start, text, statement.weight)


def find_rules(text: str) -> list[str]:
    """The sentences of a text that are standing rules, each as a reader would quote it."""
    if is_blank(text):
        return []
    return [quote_statement(each.text) for each in find_statements(text) if each.weight == "rule"]


def weigh_sentence(sentence: str) -> Weight:
    """Whether a sentence is a rule, a wish, or neither.

    What only tells of a habit is no rule. A question is none either, unless it has a word such as `from now
    on`.
    """
    folded = _normalise(sentence)
    asks = folded.rstrip(WHITE_SPACE).endswith(("?", "？", "؟"))
    if _sets_rule(folded) and (not asks or _replacing().find(folded) is not None):
        return "rule"
    if not asks and _gives_order(folded):
        return "rule"
    if _wishes().find(folded) is not None:
        return "wish"
    return ""


def _sets_rule(folded: str) -> bool:
    """Whether a sentence has words of a rule.

    `you need to ask first` has, and `what you need to know` has none.
    """
    for place in _rules().find_all(folded):
        if not _DEMANDS.match(folded, place):
            return True
        words_before = split_words(folded[:place])
        is_subordinate = bool(words_before) and words_before[-1].strip(",;:") in _ASKED_BEFORE
        if not is_subordinate and not _TOLD.match(folded, place + len("you ")):
            return True
    return any(not _only_tells(folded, place) for place in _habits().find_all(folded))


def _only_tells(folded: str, place: int) -> bool:
    """Whether the clause around a word such as `siempre` tells what somebody does.

    `Siempre he vivido aquí` tells, and `usa siempre tabuladores` gives a rule.
    """
    start = 0
    end = len(folded)
    for match in _CLAUSE_END.finditer(folded):
        if match.end() <= place:
            start = match.end()
        elif match.start() > place:
            end = match.end()  # with the mark: in Japanese a verb right before it tells
            break
    if _told_verbs().find(folded[start:end]) is not None:
        return True
    before = folded[start:place]
    if _UNSPACED.search(before[-1:]):
        before = before[-_NEAR:]
    return _subjects().find(before) is not None


def _gives_order(folded: str) -> bool:
    """Whether a sentence has an order in English that is said to somebody.

    `and never touch vendor/` is one. `I never eat meat` and `that it always rains` only tell.
    """
    return any(_is_order(folded, place) for place in _orders().find_all(folded))


def _is_order(folded: str, place: int) -> bool:
    """Whether the word of an order at this place gives one.

    It begins its clause (`Always use tabs`), or a verb does (`use tabs always`), or something is demanded
    (`files should never be empty`).
    """
    if _TOLD.match(folded, place):
        return False
    order = _orders().read(folded, place)
    if order in _CONDITIONS:
        rest = [folded[place + len(order) :], *_CLAUSE_START.split(folded)]
        return any(words[0] in _VERBS for words in map(split_words, rest) if words)
    words_before = split_words(_CLAUSE_START.split(folded[:place])[-1])
    if order.startswith("must"):
        is_noun = words_before[-1:] == ["a"]
        return bool(words_before) and not is_noun and _OTHERS.isdisjoint(words_before)
    if all(word in _LEADS for word in words_before):
        # `They help us and always smile`: the first clause says of whom it is told.
        return split_words(folded)[0] not in _OTHERS or not _AND_BEFORE.search(folded[:place])
    if words_before[-1] in _MODALS and _OTHERS.isdisjoint(words_before):
        return True
    return words_before[0] in _VERBS


def quote_statement(sentence: str, *, longest: int = LONGEST_STATEMENT) -> str:
    """The sentence, or of a very long one the clauses around the word that gives it its weight."""
    if len(sentence) <= longest:
        return sentence
    folded = _normalise(sentence)
    middle = 0
    for phrases in (_rules(), _habits(), _orders(), _wishes()):
        place = phrases.find(folded)
        if place is not None:
            middle = place
            break
    first = max(0, middle - longest // 3)
    last = min(len(sentence), first + longest)
    starts = [each.end() for each in _COMMA.finditer(sentence) if first <= each.end() <= middle]
    if first and starts:
        first = starts[0]
    ends = [each.start() for each in _COMMA.finditer(sentence) if middle < each.start() <= last]
    if last < len(sentence) and ends:
        last = ends[-1]
    before = "… " if first else ""
    after = " …" if last < len(sentence) else ""
    return f"{before}{sentence[first:last].strip(WHITE_SPACE)}{after}"


def find_replaced(rules: Sequence[str]) -> dict[str, str]:
    """Which of these rules, in the order in which they were given, a later one replaces, and by which.

    A later rule replaces an earlier one if it says that something changes, and is about the same: half of the
    words of the shorter one are in both, without those that only say that it is a rule. `From now on answer
    in American English` replaces `Always answer in British English`.
    """
    topics = [_find_topic(rule) for rule in rules]
    replaced: dict[str, str] = {}
    for at, later in enumerate(rules):
        if _replacing().find(_normalise(later)) is None:
            continue
        for earlier, topic in zip(rules[:at], topics, strict=False):
            shorter = min(len(topic), len(topics[at]))
            shared = len(topic & topics[at])
            if shorter and 2 * shared >= shorter and not _says_the_same(earlier, later):
                replaced[earlier] = later
    return replaced


def _says_the_same(one: str, other: str) -> bool:
    """Whether two rules have the same words: a rule that is given again replaces nothing."""
    folded = [frozenset(_words().findall(_replacing().remove(_normalise(rule)))) for rule in (one, other)]
    return folded[0] == folded[1]


def is_agreement(text: str) -> bool:
    """Whether a message of the user accepts what was proposed: `Yes, do that.`, `好的`."""
    if len(text) > LONGEST_AGREEMENT:
        return False
    return _agreements().find(_normalise(text).lstrip(f"{WHITE_SPACE}\"'“")) == 0


def _normalise(text: str) -> str:
    """Small letters, plain apostrophes and plain spaces. Places in the text stay what they are."""
    return fold_case(text).replace("’", "'").replace("\n", " ").replace("\t", " ")


def _find_topic(rule: str) -> frozenset[str]:
    """What a rule is about: its words without those of the tables; without spaces, pairs of letters."""
    folded = _normalise(rule)
    for phrases in (_rules(), _habits(), _orders(), _replacing()):
        folded = phrases.remove(folded)
    topic: set[str] = set()
    for word in _words().findall(folded):
        if _UNSPACED.search(word):
            topic.update(word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        elif len(word) > 2:
            # Endings differ where the same is meant: `русском` and `русского`.
            topic.add(word[: _STEM if word.isascii() else _SHORT_STEM])
    return frozenset(topic)


_STEM, _SHORT_STEM = 6, 4
"""Letters by which words are compared, of ASCII and of other scripts."""

_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
"""Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


class Phrases:
    """A table of phrases to look for in a text of small letters.

    A phrase of a script with spaces between words stands alone: `must` is not in `mustard`. Chinese and
    Japanese have no spaces, so a phrase of theirs may stand anywhere. Most sentences have none of them, and
    words tell that sooner than a pattern.
    """

    def __init__(self, table: str) -> None:
        spaced: list[str] = []
        unspaced: list[str] = []
        for entry in table.split(" | "):
            phrase = fold_case(entry.strip(WHITE_SPACE))
            if _UNSPACED.search(phrase):
                unspaced.append(phrase)
            else:
                spaced.append(phrase)
        beginnings = [_WORD_START.findall(phrase)[:2] for phrase in spaced]
        self.single_words = frozenset(words[0] for words in beginnings if len(words) == 1)
        self.pairs = frozenset((words[0], words[1]) for words in beginnings if len(words) > 1)
        alone = "|".join(re.escape(phrase) for phrase in sorted(spaced, key=len, reverse=True))
        self.spaced = re.compile(f"(?<![{ALPHANUMERIC}])(?:{alone})(?![{ALPHANUMERIC}])")
        anywhere = "|".join(re.escape(phrase) for phrase in sorted(unspaced, key=len, reverse=True))
        self.unspaced = re.compile(anywhere or "(?!)")

    def find(self, text: str) -> int | None:
        """Where the first phrase stands; None if there is none."""
        return next(self.find_all(text), None)

    def find_all(self, text: str) -> Iterator[int]:
        """Where phrases stand, those of scripts with spaces first."""
        if self._may_have(_WORD_START.findall(text)):
            for match in self.spaced.finditer(text):
                yield match.start()
        if not text.isascii() and _UNSPACED.search(text):
            for match in self.unspaced.finditer(text):
                yield match.start()

    def read(self, text: str, place: int) -> str:
        """The phrase of a script with spaces that stands at this place; "" if there is none."""
        match = self.spaced.match(text, place)
        return match[0] if match else ""

    def _may_have(self, words: Sequence[str]) -> bool:
        """Whether the words with which a phrase begins are there: far quicker to say than where it stands."""
        if not self.single_words.isdisjoint(words):
            return True
        return not self.pairs.isdisjoint(pairwise(words))

    def remove(self, text: str) -> str:
        """The text without the phrases."""
        return self.unspaced.sub(" ", self.spaced.sub(" ", text))


_WORD_START = re.compile(f"[^{WHITE_SPACE}.,;:!?'\"()\\[\\]{{}}/،؛؟।۔-]+")
"""A word up to its first apostrophe or hyphen: all that is needed to know which phrases may begin there."""


@cache
def _words() -> re.Pattern[str]:
    return re.compile(f"[{ALPHANUMERIC}]+")


@cache
def _rules() -> Phrases:
    return Phrases(" | ".join(_RULES.values()))


@cache
def _habits() -> Phrases:
    return Phrases(" | ".join(_HABITS.values()))


@cache
def _subjects() -> Phrases:
    return Phrases(" | ".join(_SUBJECTS.values()))


@cache
def _told_verbs() -> Phrases:
    return Phrases(" | ".join(_TOLD_VERBS.values()))


@cache
def _orders() -> Phrases:
    return Phrases(_ORDERS)


@cache
def _wishes() -> Phrases:
    return Phrases(" | ".join(_WISHES.values()))


@cache
def _replacing() -> Phrases:
    return Phrases(_REPLACING)


@cache
def _agreements() -> Phrases:
    return Phrases(_AGREED)
