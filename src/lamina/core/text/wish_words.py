"""The words by which wishes are known: preferences, needs, definitions, corrections and requests.

Each language has four tables. `tells` has words that make a sentence a wish wherever they stand. `asks` has
forms of asking and `speaks` words of the first person: those make one only where nothing of `once` stands
beside them, by which something is told that happened, or asked for this one time. `*` stands for the rest of
a word: `allerg*` is in `allergies`, and `*ieron` in `comieron`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from lamina.core.text.sentences import Phrases


class WishWords(NamedTuple):
    """The words of one language."""

    tells: str
    asks: str = ""
    speaks: str = ""
    once: str = ""


WISHES = {
    "English": WishWords(
        tells="don't have to be | you needn't | slipped to | moved to | "
        "her name is | his name is | their name is | bores me | bore me | makes me sick | i said | "
        "i told you | i wrote | goes by | known as | don't get along | driving licence | "
        "driver's license | scratch that | scratch what | no wait | wrong number | wrong name | "
        "wrong date | wrong address | new address | new number | we moved | i moved | "
        "any day of the week | put me off | puts me off | in my messages | in my case | happier with | "
        "i'd be happy | surgery | ramadan | night shift* | toddler | prefer* | i'd rather | "
        "i would rather | i like | we like | i love | i enjoy | i hate | i dislike | i don't like | "
        "i can't stand | i can't bear | fan of | a fan | more of a | not into | i'm into | not my thing | "
        "suits me | suit me | works best | works better | favorite* | favourite* | tend to | drives me | "
        "annoy* | bothers me | if possible | no need to | don't need | spare me | less is more | "
        "the fewer | allerg* | intoleran* | vegan* | vegetarian* | diabet* | pregnan* | kosher | halal | "
        "gluten* | lactose | wheelchair | deaf | colour-blind | color-blind | dyslexi* | asthma* | "
        "migraine* | epilep* | adhd | autis* | disability | i'm disabled | impaired | eyesight | "
        "left-handed | screen reader | don't eat | don't drink | don't drive | don't speak | don't own | "
        "i cannot | not allowed | i have to avoid | my doctor | i live | we live | based in | time zone | "
        "timezone | crutches | i mean | i meant | we mean | i call | we call | call me | address me | "
        "my name | i go by | when i say | if i say | when i write | if i write | whenever i say | "
        "when i talk | short for | stands for | refers to | shorthand | counts as | read it as | for us | "
        "correction | i was wrong | i got it wrong | my mistake | my bad | misspoke | mixed up | mix up | "
        "got that wrong | that's wrong | that is wrong | misunder* | typo | on second thought | "
        "changed my mind | anymore | any more | spelled | spelt | small thing | forget what | "
        "forget about | not what i | i decided | we decided | i've decided | i have decided | i chose | "
        "i've chosen | i opted | i aim | my goal is | our goal is | be great if | be nice if | be good if | "
        "be lovely if | be helpful if | helps if | help if | love it if | like it if | like it when | "
        "be grateful | let's use | let us use | we'll use",
        asks="in our | in my | in this house | by the way | btw | mind giving | mind using | mind if | "
        "plenty | beginner | that's how | any chance | would it be | is it okay | is it ok | usually | "
        "normally | always | mondays | tuesdays | wednesdays | thursdays | fridays | saturdays | "
        "sundays | weekends | weekdays | we're | any day | keep it | keep your | the one in | "
        "appreciate | for me | blind | you keep | turns out | ideally | no longer | mistaken | on me | "
        "with me | used to | budget | hearing | means | easier | i take | i'm on | i only | we only | "
        "i can't | we can't | could you | can you | would you | will you | do you mind | please | "
        "kindly | feel free",
        speaks="our | ours | i | i'm | i've | i'd | me | my | mine | myself | we | we're | we've | us",
        once="yesterday | today | tonight | this | these | last | just | again | ago | then | know | "
        "tell me | how | why | was | were | had | went | met | told | saw | took | made | came | said | "
        "did | found | bought | sold | ran | ate | spent | felt | heard | *lked | *ted | *yed | *ned | "
        "*red | *ved | reminds | check | show | title | need | second | next | tired | laugh",
    ),
    "German": WishWords(
        tells="musst du nicht | müssen sie nicht | verschoben | verlegt | sie heißt | er heißt | "
        "heißen sie | langweilt mich | langweilen mich | mir wird | gibt es bei | ich sagte | sagte ich | "
        "ich schrieb | habe gesagt | hab gesagt | so denke ich | falsche nummer | falschen namen | "
        "neue adresse | neue nummer | umgezogen | halt, | duzen | siezen | schreckt mich | "
        "schrecken mich | führerschein | nachtschicht* | operiert | kleinkind | ins wort | "
        "in meinen nachrichten | in meinem fall | lieber | liebsten | bevorzug* | vorzieh* | ich mag | "
        "mag ich | wir mögen | mögen wir | gefällt mir | gefallen mir | ich liebe | ich hasse | "
        "hasse ich | nicht leiden | nicht ausstehen | nervt mich | nerven mich | stört mich | "
        "stören mich | gern | gerne | ungern | reicht mir | reichen mir | genügt mir | für mich | "
        "mir ist | mir wäre | liegt mir | liegen mir | kein freund | kein fan | fan von | mir wichtig | "
        "hilft mir | gewohnt | nach möglichkeit | wenn möglich | wenn's geht | möglichst | lieblings* | "
        "man mich | brauchst du | brauchst mir | unverträglich* | vertrag* | veget* | schwanger* | "
        "koscher | laktose* | zöliakie | rollstuhl* | taub | gehörlos* | schwerhörig* | blind | "
        "rot-grün-blind | sehbehindert* | farbenblind | legasthen* | migräne* | adhs | *behinder* | "
        "linkshänder* | screenreader | esse kein* | trinke kein* | kein alkohol | kein auto | "
        "kein fleisch | kann nicht | kann kein* | kann ich nicht | kann ich kein* | können wir nicht | "
        "mein arzt | wohne | wohnen | zeitzone | angewiesen | höchstens | meine ich | ich meine | "
        "meinen wir | gemeint | verstehe ich | verstehen wir | heißt bei | heißt für | bedeutet | "
        "steht für | bezeichne* | nenne ich | nennen wir | ich nenne | abkürzung | kurz für | nenn mich | "
        "nennen sie mich | ich heiße | heiße ich | mein name | irrtum | irre | geirrt | vertan | "
        "verwechsel* | korrektur | korrigier* | stimmt nicht | nicht mehr | doch nicht | doch erst | "
        "sondern | und nicht | schreibt sich | eigentlich | versehen | verschrieben | vertippt | "
        "missverst* | statt | anstatt | stattdessen | ich meinte | mein ziel | wäre nett | wäre schön | "
        "wäre toll | wäre gut | wäre super | wäre lieb | wäre prima | wäre hilfreich | würde mir helfen | "
        "dankbar | fände ich | freue mich, wenn",
        asks="hier | in der familie | übrigens | nebenbei | heißt | vollkommen | anfänger* | ausmachen | "
        "hättest du | wär's | reicht | reichen | genügt | immer | meistens | normalerweise | montags | "
        "dienstags | mittwochs | donnerstags | freitags | samstags | sonntags | werktags | "
        "am wochenende | jede* | als | du kannst | kurz | halt | beginnt | fängt | besser | eher | "
        "wenn ich | wenn wir | leben | lebe | nehme | darf | dürfen | überlegt | entschieden | falsch | "
        "sage ich | bei uns | bei mir | kannst du | könntest du | könnten sie | können sie | würdest du | "
        "würden sie | magst du | bitte | ich möchte | ich will | ich brauche | ich hätte",
        speaks="unser* | ich | mich | mir | mein | meine | meiner | meinem | meinen | wir | uns",
        once="gestern | heute | vorhin | dann | danach | letzt* | dies* | nochmal | noch einmal | "
        "wieder | wissen | wie | wer | warum | wo | zweite* | nächste* | war | waren | hatte | hatten | "
        "traf | ging | kam | sah | fand | erinnert | schreib | zeig* | titel | prüf* | *geplaudert | "
        "*laufen | müde",
    ),
    "French": WishWords(
        tells="repoussé* | reporté* | décalé* | tu n'es pas obligé | arrête avec | me rend | me rendent | "
        "j'ai dit | je disais | j'ai écrit | l'appelle | s'appelle | ça fait deux | attends | "
        "mauvais numéro | mauvais nom | nouvelle adresse | nouveau numéro | déménagé | tutoyer | tutoie | "
        "vouvoyer | vouvoie | me décourage* | me va | me vont | permis | de nuit | opéré* | bébé | "
        "dans mes messages | dans mon cas | préfér* | j'aime | on aime | nous aimons | n'aime pas | "
        "j'adore | déteste | je hais | supporte | raffole | fan de | pas fan | plutôt | de préférence | "
        "me plaît | me plaisent | me convient | conviennent | m'arrange | m'agace | m'énerve | me gêne | "
        "me dérange | pour moi | avec moi | mon truc | ma tasse | si possible | idéalement | "
        "autant que possible | inutile de | pas besoin | pas la peine | l'habitude | me suffit | "
        "favori* | intoléran* | végan* | végétar* | végétalien* | diabét* | enceinte | casher | gluten | "
        "cœliaque | fauteuil roulant | sourd* | malentendant* | aveugle* | malvoyant* | daltonien* | "
        "asthm* | épilep* | tdah | handicap* | gaucher* | gauchère | lecteur d'écran | ne mange | "
        "ne mangeons | ne bois | ne conduis | pas de voiture | ne peux pas | ne peut pas | ne pouvons | "
        "pas droit | je prends | médecin | j'habite | nous habitons | je vis | nous vivons | on vit | "
        "on habite | fuseau | décalage | béquilles | je veux dire | je parle de | je parle du | j'écris | "
        "j'entends par | on entend | nous entendons | j'appelle | on appelle | nous appelons | désigne* | "
        "signifie | veut dire | veulent dire | il s'agit | chez nous | chez moi | pour nous | abrév* | "
        "c'est-à-dire | appelle-moi | appelez-moi | je m'appelle | mon nom | trompé* | erreur | "
        "confond* | rectif* | corrige | et non | non pas | ne plus | n'est plus | plus du tout | "
        "au lieu | s'écrit | mal compris | changé d'avis | je voulais dire | j'ai décidé | avons décidé | "
        "j'ai choisi | mon objectif | je vise | serait bien | serait mieux | serait gentil | "
        "serait sympa | serait top | serait génial | serait chouette | merci de | merci d' | "
        "j'apprécie* | m'aiderait | reconnaissant*",
        asks="ici on | tu veux bien | vous voulez bien | au fait | au passage | d'ailleurs | ça vous | "
        "ça t' | débutant* | ma façon | ça t'embêterait | ça te dérange* | ça vous dérange* | "
        "est-ce possible | possible de | toujours | d'habitude | normalement | le lundi | le mardi | "
        "le mercredi | le jeudi | le vendredi | le samedi | le dimanche | le week-end | chaque | "
        "plus que | moins que | court* | commence | mieux | davantage | suffit | oublie | oubliez | "
        "en fait | je dis | finalement | et pas | peux-tu | pourrais-tu | pouvez-vous | pourriez-vous | "
        "tu peux | tu pourrais | vous pourriez | s'il te plaît | s'il vous plaît | stp | svp | "
        "je voudrais | j'aimerais | je veux | j'ai besoin",
        speaks="m'* | j'* | notre | nos | on est | on n'a | on n'est | on part | on dort | on mange | "
        "on voyage | on travaille | on a un | on a une | je | moi | mon | ma | mes | nous",
        once="hier | aujourd'hui | ce | cet | cette | ces | tout à l'heure | ensuite | puis | encore | "
        "dernier* | dernière* | savoir | dire | quel* | qu'est-ce | comment | pourquoi | où | qui | "
        "deuxième | croisé | passé* | marché* | acheté* | vendu* | *ouvert | été | était | avait | "
        "rappelle | raconté | vérifi* | montre* | titre | écris | fatigué*",
    ),
    "Spanish": WishWords(
        tells="se ha movido | se movió | aplaz* | pospuest* | se cambió | ha cambiado | se llaman | "
        "no tienes que | no tienes por qué | me marea* | me mareo | dije | te decía | escribí | "
        "se llama | le decimos | le digo | espera | el número mal | mal el | nueva dirección | "
        "nuevo número | mudado | mudamos | tutéa* | tutear* | de usted | con ese | con zeta | me vale* | "
        "me echa* | carné | de noche | ramadán | operad* | bebé | en mis mensajes | en mi caso | "
        "prefier* | me gusta | me gustan | nos gusta | nos gustan | me encanta* | nos encanta* | "
        "no soporto | no aguanto | odio | detesto | me molesta* | me fastidia* | me agobia* | "
        "me cuesta* | me aburre* | soy más de | somos más de | soy muy de | no soy de | no soy muy | "
        "me va mejor | me viene* | me conviene | me resulta | me basta | me sirve | para mí | conmigo | "
        "si puede ser | si es posible | a ser posible | de ser posible | idealmente | no hace falta | "
        "no necesito que | favorit* | acostumbr* | suelo | solemos | mejor si | alérgic* | alergi* | "
        "embarazada | celíac* | celiac* | lactosa | silla de ruedas | sord* | cieg* | daltónic* | "
        "dislexi* | disléxic* | asma | asmátic* | migraña* | discapaci* | zurd* | lector de pantalla | "
        "no como | no comemos | no bebo | no conduzco | no puedo | no podemos | no puede | no debo | "
        "me sienta* | muletas | médico | presupuesto | vivimos | huso | zona horaria | solo tengo | "
        "solo tenemos | solamente | me refiero | quiero decir | cuando digo | si digo | cuando hablo | "
        "cuando escrib* | llamo | llamamos | significa | quiere decir | se refiere | entendemos | "
        "entiendo por | entiéndase | equivale | es decir | para nosotros | en mi casa | abreviatura | "
        "llámame | mi nombre | me equivoqué | equivoqu* | equivocad* | errata | corrección | corrijo | "
        "rectific* | confund* | en realidad | ya no | en lugar de | en vez de | se escribe | "
        "mal entendido | entendiste mal | quise decir | mejor dicho | cambié de | he decidido | "
        "decidimos | elegí | mi objetivo | estaría bien | estaría genial | sería bueno | sería genial | "
        "sería ideal | sería mejor | me ayudaría | te agradec* | agradec* | ojalá | porfa",
        asks="en mi | en mis | me lo | me los | me las | me la | por cierto | a propósito | bastante | "
        "principiante* | así pienso | importaría | te importa | sería posible | es posible | siempre | "
        "normalmente | los lunes | los martes | los miércoles | los jueves | los viernes | los sábados | "
        "los domingos | los fines | cada | antes que | más que | menos que | cort* | empieza | mejor | "
        "aquí | en casa | al final | y no | me da* | me cae* | tomo | sino | dije que | olvida | vivo | "
        "me ayuda | perdona | perdón | puedes | podrías | podría | puede usted | por favor | quisiera | "
        "me gustaría | quiero | necesito | háblame | dime | trátame",
        speaks="nuestr* | vamos | hago | sigo | aprendo | duermo | como | viajo | viajamos | estudio | "
        "leo | hablo | hablamos | entiendo | salgo | puedo | podemos | evito | *emos | yo | mí | mi | "
        "mis | nosotros | soy | somos | estoy | estamos | tengo | tenemos | trabajo | trabajamos | uso | "
        "usamos | ando | voy | padezco | sufro | llevo",
        once="ayer | hoy | anoche | luego | después | este | esta | estos | estas | otra vez | de nuevo | "
        "último* | última* | segundo | saber | decirme | qué | cómo | quién | cuándo | dónde | cuál | "
        "*aron | *ieron | *ió | *tó | *zó | *ró | *có | *nó | *só | *minamos | *minate | fue | fui | "
        "hizo | vi | dijo | pasamos | charlamos | caminé | recuerda | enséñame | título | revisa* | "
        "cansad*",
    ),
    "Portuguese": WishWords(
        tells="passou para | passou pra | adiad* | foi adiad* | se chamam | não precisas | não tem que | "
        "enjoad* | me deixa* | fico | eu disse | eu falei | escrevi | se chama | chama de | "
        "não combina* | número errado | nome errado | data errada | novo endereço | novo número | mudou | "
        "com dois | me desanima* | me serve* | carteira de motorista | carta de condução | à noite | "
        "ramadã | jejum | bebê | nas minhas mensagens | no nosso caso | prefir* | gosto | gostamos | "
        "gosta mais | curto | curte | curtimos | adoro | odeio | não suporto | não aguento | "
        "me incomoda* | incomoda* | me irrita* | me atrapalha* | dispenso | me dou me dou bem | "
        "sou mais | somos mais | sou fã | sou muito | não sou de | mais fácil | melhor | pra mim | "
        "para mim | comigo | se possível | se der | de preferência | não precisa | não precisam | "
        "costumo | costumamos | intoler* | grávida | gestante | glúten | cadeira de rodas | cadeirante | "
        "surd* | ceg* | daltônic* | enxaqueca* | deficien* | canhot* | leitor de tela | leitor de ecrã | "
        "não como | não comemos | não bebo | não dirijo | não conduzo | não posso | não podemos | "
        "não pode | não consigo | não tenho | não temos | faz mal | orçamento | moro | moramos | "
        "vivemos | fuso | só tenho | só temos | quero dizer | quando digo | quando falo | chamamos | "
        "quer dizer | se refere | me refiro | refiro-me | entenda* | entendo por | ou seja | "
        "no meu caso | pra gente | para nós | aqui em casa | lá em casa | abrevia* | me chame | "
        "chame-me | me chama | meu nome | me chamo | errei | me enganei | enganei-me | engano | corrig* | "
        "correção | retific* | na verdade | não mais | já não | mais não | em vez | ao invés | não dia | "
        "escreve-se | se escreve | esquece | esqueça | mudei de | quis dizer | decidi | escolhi | "
        "meu objetivo | seria bom | seria ótimo | seria legal | seria ideal | ajudaria | agradeço | "
        "agradecia | tomara | ficaria feliz",
        asks="no meu | na minha | pode ser | aliás | por sinal | já está bom | iniciante* | se importa | "
        "dava pra | dava para | seria possível | é possível | sempre | às segundas | às terças | "
        "às quartas | às quintas | às sextas | aos sábados | aos domingos | domingo eu | mais que | "
        "do que | curt* | começa | aqui | basta | quando eu | se eu | afinal | no fim | e não | e sim | "
        "erro | tomamos | desculpa | desculpe | chamo | me ajuda | você pode | pode me | poderia | "
        "podes | podias | dá pra | dá para | tem como | gostaria | quero | preciso | queria",
        speaks="noss* | faço | durmo | estudo | leio | falo | falamos | entendo | saio | posso | eu | "
        "mim | meu | minha | meus | minhas | nós | a gente | sou | estou | tenho | temos | trabalho | "
        "trabalhamos | sofro",
        once="ontem | hoje | depois | estes | esse | essa | isso | de novo | outra vez | dizer | qual | "
        "quais | quem | quando | onde | *rou | *tou | *lou | *cou | *riu | *deu | *aram | *eram | *nhei | "
        "*trei | *orei | *versamos | passamos | foi | fez | disse | estava | lembra | mostra | confer* | "
        "volta",
    ),
    "Russian": WishWords(
        tells="сдвинул* | перенес* | перенёс* | отлож* | её зовут | ее зовут | его зовут | можно без | "
        "обойд* | укачива* | болят | болит | — это | я говорил* | я сказал* | я писал* | я написал* | "
        "мы зовём | мы зовем | у нас зовётся | противопоказан* | не тот | не та | не то | не туда | "
        "неверный | новый адрес | новый номер | переехал* | стоп | с одной | с двумя | отпугива* | "
        "хватит | мне ближе | мне понятн* | прав у меня | пост | рамадан* | операци* | малыш* | младен* | "
        "в моих сообщениях | в моём случае | по ночам | предпоч* | нравится | нравятся | люблю | обожаю | "
        "ненавижу | терпеть не | не выношу | раздраж* | бесит | бесят | мешает | мне проще | мне легче | "
        "мне удобн* | мне важн* | мне мне комфортн* | мне привычн* | мне хватает | мне достаточно | "
        "мне мне не нужн* | мне нельзя | мне тяжело | мне трудно | мне сложно | для меня | не моё | "
        "лучше | по душе | желательно | по возможности | если можно | в идеале | привык* | любим* | "
        "не надо | не стоит | необязательно | аллерг* | неперенос* | веган* | вегетариан* | диабет* | "
        "беременн* | кошерн* | халяль* | глютен* | лактоз* | коляск* | глух* | слеп* | слабовидящ* | "
        "дальтоник* | дислекси* | астм* | мигрен* | эпилепс* | аутизм* | аутист* | инвалид* | левша | "
        "плохо вижу | плохо слышу | не ем | не едим | не ест | не пью | не вожу | не говорю | "
        "не переношу | бюджет* | живу | живём | живем | часово* | разниц* | костыл* | пощусь | "
        "имею в виду | имеем в виду | имеется в виду | подразумева* | понимаем | понимаю под | называю | "
        "называем | означает | это у меня | то есть | сокращ* | зови меня | зовите меня | называй* | "
        "меня зовут | моё имя | мое имя | обращай* | на ты | на вы | ошиб* | перепутал* | путаешь | "
        "путаете | спутал* | оговор* | опечат* | поправ* | исправ* | неправильно | неверно | "
        "не так поня* | всё-таки | все-таки | на самом деле | больше не | уже не | вместо | а не | "
        "передума* | пишется | вернее | точнее | я решил* | мы решили | я выбрал* | моя цель | "
        "хорошо бы | было бы | буду рад* | буду благодар* | буду признател* | попроще | покороче | "
        "хотелось бы | имел* в виду",
        asks="обычно | к слову | достаточно | вполне | новичок | у нас | не против | не трудно | можно | "
        "всегда | по понедельникам | по вторникам | по средам | по четвергам | по пятницам | "
        "по субботам | по воскресеньям | по выходным | кажд* | чем | коротк* | кратк* | начинается | "
        "меня не | значит | когда я | если я | не могу | не можем | не может | врач | не нужно | "
        "принимаю | забудь | скорее | можешь | можете | не могла бы | мог бы | могли бы | пожалуйста | "
        "прошу | хочу | хотел бы | хотела бы | мне нужно | мне нужен | мне нужна | давай | давайте",
        speaks="наш* | моих | моим | моему | сына | я | мне | меня | мной | мой | моя | моё | мои | "
        "моего | моей | мы | нам | нас | работаю | работаем | пользуюсь | учусь | кстати",
        once="вчера* | сегодня | потом | затем | опять | снова | ещё раз | еще раз | последн* | втор* | "
        "узнать | сказать | какой | какая | какова | кто | почему | где | *шёл | *шел | *ался | *илась | "
        "*лись | *лся | *ал | *ил | *ла | *ли | было | был | покажи | напиши | переведи | провер* | "
        "название | заголов* | устал*",
    ),
    "Chinese": WishWords(
        tells="推到 | 推迟 | 延期 | 提前到 | 她叫 | 他叫 | 就是那 | 无聊 | 晕 | 伤我 | 刚说 | 我写的 | "
        "我们叫 | 吃不了 | 喝不了 | 够了 | 足够 | 等等 | 等一下 | 错了 | 新地址 | 新号码 | 搬家 | 搬到 | "
        "驾照 | 夜班 | 斋月 | 守斋 | 手术 | 宝宝 | 电梯 | 膝盖 | 合我 | 口味 | 满意 | 看不下去 | 学得 | "
        "没空 | 不接 | 我信里 | 喜欢 | 喜歡 | 偏好 | 偏爱 | 偏愛 | 倾向 | 讨厌 | 不爱 | 爱吃 | 受不了 | "
        "不太能 | 不习惯 | 习惯了 | 更愿意 | 宁愿 | 宁可 | 比较适合 | 对我来说 | 对我来講 | 比起 | "
        "更清楚 | 更方便 | 最好 | 尽量 | 儘量 | 不必 | 不需要 | 别给我 | 少用 | 多用 | 最爱 | 看着累 | "
        "就行 | 过敏 | 過敏 | 不耐受 | 吃素 | 素食 | 糖尿病 | 怀孕 | 孕妇 | 清真 | 麸质 | 乳糖 | 轮椅 | "
        "听不见 | 听力 | 失聪 | 看不清 | 看不见 | 视力 | 色盲 | 色弱 | 近视 | 哮喘 | 偏头痛 | 癫痫 | "
        "自闭 | 残疾 | 左撇子 | 读屏 | 不吃 | 不喝 | 不会开车 | 没有车 | 没车 | 吃药 | 预算 | 我住 | "
        "住在 | 时差 | 时区 | 忌口 | 高血压 | 信佛 | 我不会 | 意思是 | 的意思 | 我说的 | 我们说的 | "
        "说的是 | 是指 | 指的是 | 指的就是 | 我指 | 我们管 | 叫做 | 简称 | 所谓 | 当我说 | 我提到 | "
        "在我这 | 在我们 | 我们这 | 我们家 | 叫我 | 称呼我 | 稱呼我 | 我的名字 | 我叫 | 更正 | 纠正 | "
        "糾正 | 说错 | 記錯 | 记错 | 弄错 | 搞错 | 写错 | 弄混 | 搞混 | 看错 | 误会 | 其實 | 实际上 | "
        "不是 | 而非 | 改为 | 改為 | 改成 | 改到 | 改用 | 不再 | 刚才说 | 前面说 | 变卦 | 改主意 | "
        "选择了 | 選擇 | 我的目标 | 我的目標 | 希望你 | 希望您 | 要是能 | 如果能 | 的话就 | 麻烦你 | "
        "麻烦您 | 随意一点 | 一点就",
        asks="帮我 | 好吗 | 行吗 | 顺便 | 对了 | 能 | 新手 | 介意 | 方便的话 | 简单点 | 一点 | 总是 | "
        "通常 | 一般 | 每 | 周末 | 周日 | 比 | 算起 | 开始 | 决定 | 決定 | 只有 | 不用 | 怕 | 嫌 | 医生 | "
        "其实 | 不对 | 习惯 | 就好 | 可以 | 请 | 請 | 麻烦 | 希望 | 想要 | 我想 | 我要 | 需要",
        speaks="我 | 咱",
        once="这张 | 这份 | 这段 | 这篇 | 这个 | 这章 | 这次 | 那次 | 那天 | 昨天 | 昨晚 | 今天 | 刚才 | "
        "刚刚 | 后来 | 然后 | 了 | 上次 | 最后 | 知道 | 什么 | 怎么 | 多高 | 多少 | 谁 | 哪 | 过去 | "
        "标题",
    ),
    "Japanese": WishWords(
        tells="延びました | 早まり | 名前は | 構いません | かまいません | 結構です | 酔い | 痛く | "
        "惹かれ | 体質 | と言いました | と書きました | 呼ばれて | 足ります | 受け付け | 初心者 | 待って | "
        "新しい住所 | 新しい番号 | 引っ越し | 免許 | 夜勤 | 断食 | ラマダン | 手術 | 子ども | 子供 | "
        "赤ちゃん | 膝 | 理解しやすい | 疲れます | 十分です | 敬語 | 無理です | といったら | の字 | "
        "なので | 持っていません | お願いでき | 好き | 好み | 嫌い | 苦手 | 派です | 派なの | 派だ | "
        "ほうが | 方が | よりも | 読みやすい | わかりやすい | 分かりやすい | 助かり | 助かる | "
        "ありがたい | 嬉しいです | うれしいです | 楽です | なるべく | できれば | 可能なら | できるだけ | "
        "不要です | いりません | 要りません | なくていい | なくて大丈夫 | 希望 | と呼んで | お気に入り | "
        "慣れて | 落ち着き | 性に合 | 気になり | 困ります | アレルギー | 不耐 | ベジタリアン | "
        "ヴィーガン | 菜食 | 妊娠 | 妊婦 | ハラル | グルテン | 車椅子 | 車いす | 聞こえない | "
        "聞こえません | 難聴 | 視力 | 色覚 | 喘息 | 片頭痛 | 偏頭痛 | てんかん | 自閉 | 障害 | 障がい | "
        "左利き | 読み上げ | 食べません | 食べられ | 飲みません | 飲めません | 飲めない | 運転でき | "
        "薬を | 医者 | 医師 | 予算 | 在住 | 住んで | 時差 | 一人暮らし | しかない | しかありません | "
        "ので、 | というのは | とは、 | という意味 | のことです | のことだ | を指し | を指す | "
        "と言ったら | といえば | と言えば | と呼び | 呼んでいます | 略です | うちでは | うちの | 我が家 | "
        "私の名前 | と申します | 訂正 | 間違え | 間違い | 勘違い | 誤解 | 誤り | 違います | ではなく | "
        "じゃなくて | でなく | さっきの | 先ほどの | 実は | 変わりました | 代わりに | やめて | "
        "もう使わない | 決めました | 決めた | 選びました | 目指して | つまり | もらえると | "
        "いただけると | くれると | ほしい | 欲しい",
        asks="くれませんか | もらえませんか | いただけませんか | 目が | 耳が | やっぱり | やはり | 変更 | "
        "できません | できない | いいです | 違って | 実際 | 面倒 | もらえますか | いただけますか | "
        "くれますか | もらえない | いただけない | お願い | したい",
        speaks="です。 | ます。 | ません。 | ないです | うち | 私 | 僕 | 俺 | 我々 | 自分は | ちなみに",
        once="昨日 | さっき | 今 | また | もう一度 | この | その | 最後の | 何 | どう | 誰 | いつ | "
        "どこ | 知りたい | ました | でした | ちゃった | 番目 | 題名",
    ),
    "Hindi": WishWords(
        tells="खिसक | टल | उसका नाम | उनका नाम | इसका नाम | दुखती | दुखता | चक्कर | बताइएगा | लिखिएगा | "
        "कीजिएगा | दीजिएगा | रखिएगा | करिएगा | मैंने कहा | मैंने बताया | मैंने लिखा | नहीं खाया जाता | "
        "नहीं जाता | बहुत है | नौसिखि* | भाती | भाता | समझ आता | ऊब | नया पता | नया नंबर | घर बदल | "
        "लाइसेंस | रात की | रोज़े | रमज़ान | ऑपरेशन | छोटा बच्चा | घुटने | लिफ़्ट | छोटी इ | बड़ी ई | "
        "तुम कहकर | आप कहकर | मेरे संदेश* | से मेरा | पसंद | पसन्द | नापसंद | प्राथमिकता | अच्छा लगता | "
        "अच्छे लगते | अच्छी लगती | बेहतर | मज़ा | मजा | बुरा लगता | चिढ़ | नफ़रत | नफरत | परेशानी | दिक़्क़त | "
        "दिक्कत | आसानी | मेरे लिए | हमारे लिए | हो सके | संभव हो | ज़रूरत नहीं | जरूरत नहीं | काफ़ी है | "
        "काफी है | आदत | शौक | एलर्जी | असहिष्णु* | शाकाहारी | मांसाहारी | वीगन | शुगर | मधुमेह | "
        "डायबिटीज़ | डायबिटीज | गर्भवती | हलाल | ग्लूटेन | व्हीलचेयर | बहरा | बहरी | सुनाई नहीं | सुन नहीं | "
        "अंधा | दिखाई नहीं | नज़र | दमा | अस्थमा | माइग्रेन | मिर्गी | विकलांग | दिव्यांग | बाएँ हाथ | "
        "नहीं खाता | नहीं खाती | नहीं खाते | नहीं पीता | नहीं पीती | नहीं पीते | खाना मना | मना है | "
        "नहीं सकता | नहीं सकती | नहीं सकते | दवा | दवाई | डॉक्टर | बजट | रहता हूँ | रहती हूँ | रहते हैं | "
        "रहता हूं | रहती हूं | व्रत | रोज़ा | उपवास | मतलब | कहूँ | कहूं | बोलूँ | बोलूं | कहता हूँ | "
        "कहती हूँ | कहते हैं | कहलाता | समझना | समझिए | समझिएगा | समझें | यानी | अर्थ | हमारे यहाँ | "
        "हमारे यहां | मेरे यहाँ | हमारे घर | बुलाओ | बुलाएं | बुलाएँ | बुलाइए | मेरा नाम | ग़लत | गलत | "
        "ग़लती | गलती | माफ़ | माफ | सुधार | दरअसल | असल में | नहीं, | बल्कि | अब नहीं | के बजाय | की बजाय | "
        "की जगह | के स्थान पर | तय किया | फैसला किया | निर्णय लिया | चुना है | चुनी है | मेरा लक्ष्य | "
        "अच्छा होगा | अच्छा रहेगा | ठीक रहेगा | काश | मेहरबानी | कृपा | करो तो | करें तो | दिया करो | "
        "लिखा करो | किया करो | दिया करें | किया करें | लिखा करें | दिया कीजिए",
        asks="क्या आप | क्या तुम | से ज़्यादा | से कम | हमेशा | आमतौर | अक्सर | हर | इतवार को | रविवार को | "
        "शनिवार को | सोमवार को | छोटे | संक्षेप | शुरू | से होती | कहिए | रखें | रखिए | दें | दीजिए | "
        "करना | रखना | देना | बताना | लिखना | बदल | भूल | आसान | दिखाई | दिखता | केवल | सिर्फ | सिर्फ़ | "
        "पाता | पाती | कृपया | सकते हैं | सकते हो | सकती हैं | सकेंगे | चाहता हूँ | चाहती हूँ | "
        "चाहता हूं | चाहती हूं | चाहिए | प्लीज़ | प्लीज",
        speaks="मुझसे | हमारी | हमारा | हमारे | हूँ | हूं | मेरा | मैं | मुझे | मुझको | मेरी | मेरे | हम | हमें | वैसे",
        once="कल | आज | परसों | फिर | दोबारा | यह | इस | ये | पिछले | पिछली | आख़िरी | आखिरी | दूसरे | "
        "दूसरी | जानना | क्या है | कैसे | कौन | क्यों | कहाँ | कितना | कितनी | ने | था | थी | थे | गया | "
        "गई | गए | गयी | हुआ | हुई | हुए | रहा | रही | रहे | आया | आई | चला | चली | शीर्षक | थक*",
    ),
    "Arabic": WishWords(
        tells="تأجل | تأجلت | تغير | تغيرت | تقدم إلى | اسمها | اسمه | يشعرني | دوار | أصاب | قلت | "
        "كتبت لك | يناسب | نسميه | مبتدئ | لحظة | خاطئا | خاطئ | خاطئة | العنوان الجديد | عنواني الجديد | "
        "الرقم الجديد | انتقلنا | انتقلت | رخصة | بالليل | ليلا | رمضان | أصوم | عملية | طفل | رضيع | "
        "مصعد | ركبتي | ركبي | تملني | تكفي | تكفيني | بالضاد | بالظاء | بالتاء | بالسين | بالصاد | "
        "في رسائلي | تخاطبني | خاطبني | أفضل | أفضّل | نفضل | نفضّل | يفضل | أحب | نحب | أحبذ | أكره | "
        "يعجبني | تعجبني | لا أطيق | لا أتحمل | ما أتحمل | ما أطيق | يزعجني | تزعجني | يضايقني | "
        "يناسبني | تناسبني | يريحني | أرتاح | أميل | أسهل | بالنسبة لي | بالنسبة لنا | معي | إن أمكن | "
        "لو أمكن | إذا أمكن | قدر الإمكان | لا داعي | ما في داعي | ما يحتاج | لا حاجة | يكفيني | يكفي | "
        "المفضل | المفضلة | متعود | متعودة | تعودت | معتاد | حساسية | عدم تحمل | نباتي | نباتية | سكري | "
        "السكري | السكر | حامل | حلال | الغلوتين | الجلوتين | اللاكتوز | أصم | صماء | سمعي | السمع | "
        "أعمى | كفيف | كفيفة | نظري | البصر | عمى | ربو | الربو | الشقيقة | الصرع | التوحد | إعاقة | "
        "أعسر | عسراء | قارئ الشاشة | لا آكل | ما آكل | لا نأكل | ما ناكل | لا أشرب | ما أشرب | لا أقود | "
        "ما أسوق | لا أستطيع | ما أقدر | ما نقدر | لا أقدر | لا يمكنني | ممنوع | آخذ | أتناول | الطبيب | "
        "الدكتور | ميزانيتي | ميزانيتنا | الميزانية | أسكن | ساكن | ساكنة | مقيم | مقيمة | أعيش | نعيش | "
        "التوقيت | صائم | عندي | لدي | أقصد | نقصد | قصدت | قصدي | المقصود | المقصود ب* | أعني | نعني | "
        "يعني | تعني | معناه | معناها | لما أقول | عندما أقول | حين أقول | لما أكتب | عندنا | نسمي | "
        "أسمي | نسميها | اختصار | نادني | ناديني | اسمي | أخطأت | غلطت | الخطأ | تصحيح | أصحح | صحح | "
        "عفوا | عفوًا | آسف | آسفة | التبس | خلطت | تخلط | فهمتني | في الواقع | في الحقيقة | وليس | "
        "وليست | بدلا | بدلًا | بدلاً | عوضا | لم أعد | لم يعد | لم نعد | ما عاد | ما عدت | غيرت رأيي | "
        "غيرنا | انس | قررت | قررنا | اخترت | هدفي | حبذا | يا ليت | ياليت | ليتك | يا ريت | ياريت | "
        "أتمنى | أرجو | أرجوك | سأكون ممتنا | أكون شاكر* | يسعدني لو | الأفضل | يهمني",
        asks="على فكرة | بالمناسبة | للعلم | تمانع | هل من الممكن | أكثر من | دائما | عادة | كل يوم | "
        "يوم الجمعة | أيام | القصيرة | يبدأ | تبدأ | بدون | ليس | ليست | مو | مش | بل | أحسن | فهمت | "
        "خطأ | غلط | كرسي | توقيت | النظر | ممكن | هل يمكنك | هل تستطيع | تقدر | هل لك | من فضلك | "
        "لو سمحت | أود | أريد | أحتاج | أبغى | بدي | عايز",
        speaks="*كتي | *دتي | *جتي | *نتي | *رتي | *عتي | *متي | *بتي | *قتي | أفهم | أشتغل | أتعلم | "
        "أنام | أقرأ | أتكلم | أسافر | نسافر | نعمل | معنا | *ني | *نا | أنا | إني | نحن | لي | لنا | "
        "عندي | أعمل | أستخدم | أستعمل | أدرس | زوجتي | زوجي | ابني | ابنتي | بنتي | أمي | أبي | والدي | "
        "والدتي | طفلي | أعاني",
        once="أمس | اليوم | البارحة | ثم | بعدها | هذا | هذه | لهذا | مرة أخرى | الأخيرة | الأخير | "
        "الثانية | الثاني | أعرف | ماذا | كيف | لماذا | أين | كم | متى | كان | كانت | قابلت | مررت | "
        "مشيت | قضينا | ذهبت | رأيت | قال | قالت | حكى | استغرقت | عنوان*",
    ),
    "Indonesian": WishWords(
        tells="lebih suka | saya suka | aku suka | saya benci | tidak suka | panggil saya | panggil aku | "
        "nama saya | namaku | saya memutuskan | kami memutuskan | saya memilih | saya ingin | "
        "saya butuh | sebagai gantinya | daripada | bukan lagi | tidak lagi | maksud saya | koreksi | "
        "sebenarnya | favorit | alergi | berubah pikiran | tujuan saya"
    ),
    "Bengali": WishWords(
        tells="পছন্দ | অপছন্দ | ভালোবাসি | আমাকে ডাক* | আমার নাম | সিদ্ধান্ত নিয়েছি | ঠিক করেছি | "
        "বেছে নিয়েছি | চাই | দরকার | বদলে | পরিবর্তে | আর নয় | আর না | মানে আমি | সংশোধন | আসলে | "
        "অ্যালার্জি | নিরামিষ* | আমার লক্ষ্য"
    ),
    "Urdu": WishWords(
        tells="پسند | ناپسند | ترجیح | مجھے بلائیں | مجھے کہیں | میرا نام | فیصلہ کیا | طے کیا | چنا ہے | "
        "منتخب کیا | چاہتا ہوں | چاہتی ہوں | کے بجائے | کی بجائے | کی جگہ | اب نہیں | میرا مطلب | تصحیح | "
        "دراصل | اصل میں | الرجی | سبزی خور | میرا مقصد"
    ),
}


# The tables as they are looked for.


@cache
def telling() -> Phrases:
    """Words that make a sentence a wish."""
    return Phrases(" | ".join(words.tells for words in WISHES.values()))


@cache
def asking() -> Phrases:
    """Words that make a sentence a wish, unless it asks for something this one time."""
    return Phrases(" | ".join(filter(None, (words.asks for words in WISHES.values()))))


@cache
def speaking() -> Phrases:
    """Words with which a user speaks of himself or herself."""
    return Phrases(" | ".join(filter(None, (words.speaks for words in WISHES.values()))))


@cache
def once() -> Phrases:
    """Words by which something is told that happened, or asked for this one time."""
    return Phrases(" | ".join(filter(None, (words.once for words in WISHES.values()))))
