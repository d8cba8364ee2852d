"""How many tokens a text has, from its bytes alone: no vocabulary, no model, no native code.

Each byte is translated to a class (letter, digit, space, punctuation, the script of a lead byte). Classes and
class transitions are counted and weighed with coefficients fitted per family of tokenizers. The estimate does
not know the tokenizer's words: nine texts in ten are within about a fifth, long runs of one character may be
off by more than half. `bench/estimate.py` prints by how much, and fits the table. All numbers are integers,
so that the same text has the same estimate everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from lamina.core.text.characters import split_lines, split_words

UNIT = 100_000
"""The table is in units of 1e-5 token."""


def estimate_tokens(text: str, *, family: str = "o200k") -> int:
    """Tokens of `text`, rounded up; never more than its bytes, which bound every byte-level tokenizer.

    A giant text is counted to its end: samples of one that is uneven would say too little.
    """
    data = text.encode("utf-8", "surrogatepass")
    if not data:
        return 0
    weights = _weights_of(family)
    shapes = data.translate(_SHAPE, _CONTINUATION)
    letters = data.translate(_LETTER)
    total = weights.constant
    # Most of most texts are small letters and spaces: every other class is sooner found among the others.
    # Most texts have few scripts. A class that does not occur is in no pattern that does.
    others = shapes.translate(None, _FREQUENT_SHAPES)
    missing = [name for name in _OTHER_SHAPES if name not in others]
    for pattern, weight in weights.shapes:
        if pattern[0] in missing or pattern[-1] in missing:
            continue
        counted = shapes
        if len(pattern) == 1:
            counted = others
        total += weight * counted.count(pattern)
    has_rare_letters = not text.isascii()
    for pattern, weight in weights.letters:
        if has_rare_letters or pattern[0] not in _RARE_LETTERS:
            total += weight * letters.count(pattern)
    rounded_up = -(-total // UNIT)
    return min(len(data), rounded_up)


def utf8_size(text: str) -> int:
    """UTF-8 bytes; a lone surrogate counts three, as its replacement would."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


def bytes_by_3_5(text: str) -> int:
    """One token for every 3.5 bytes, rounded up."""
    return -(-utf8_size(text) * 2 // 7)


def chars_by_4(text: str) -> int:
    """One token for every 4 characters, rounded up."""
    return -(-len(text) // 4)


def bytes_by_4(text: str) -> int:
    """One token for every 4 bytes, rounded down."""
    return utf8_size(text) // 4


def features(text: str) -> list[int]:
    """What the coefficients weigh, in the order of the table: for fitting.

    Each is the count of one pattern in the text's shapes or letters; the last one is the constant.
    """
    data = text.encode("utf-8", "surrogatepass")
    shapes = data.translate(_SHAPE, _CONTINUATION)
    letters = data.translate(_LETTER)
    shape_counts = [shapes.count(pattern) for pattern in _SHAPE_PATTERNS]
    letter_counts = [letters.count(pattern) for pattern in _LETTER_PATTERNS]
    return [*shape_counts, *letter_counts, 1]


def _class_table(rest: str, *classes: tuple[str, Iterable[int]]) -> bytes:
    """A table for `bytes.translate` that gives each byte the letter of its class, or `rest`.

    A later class overrides an earlier one.
    """
    table = bytearray(rest.encode() * 256)
    for name, members in classes:
        for byte in members:
            table[byte] = ord(name)
    return bytes(table)


_CONTINUATION = bytes(range(0x80, 0xC0))

_SHAPE = _class_table(
    "o",  # control characters
    ("p", range(0x21, 0x7F)),
    ("a", b"abcdefghijklmnopqrstuvwxyz"),
    ("A", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ("d", b"0123456789"),
    ("s", b" "),
    ("t", b"\t"),
    ("n", b"\n\r"),
    ("l", range(0xC0, 0xCE)),  # Latin with accents
    ("g", range(0xCE, 0xD0)),  # Greek
    ("k", range(0xD0, 0xD2)),  # Cyrillic
    ("h", range(0xD2, 0xE0)),  # Hebrew, Arabic and neighbours
    ("i", range(0xE0, 0xE1)),  # Indic scripts, Thai
    ("j", range(0xE1, 0xE2)),  # Georgian, Vietnamese, rare scripts
    ("q", range(0xE2, 0xE3)),  # dashes, quotes, symbols
    ("w", range(0xE3, 0xE4)),  # kana
    ("z", range(0xE4, 0xEA)),  # Han
    ("y", range(0xEA, 0xEE)),  # Hangul
    ("u", range(0xEE, 0xF0)),  # private use, full width
    ("x", range(0xF0, 0x100)),  # emoji and rare scripts
)

_LETTER = _class_table(
    ".",
    ("c", b"bcdfghlmnprstBCDFGHLMNPRST"),
    ("v", b"aeiouAEIOU"),
    ("r", b"jkqvwxyzJKQVWXYZ"),  # rare in English, so rare in the words of a vocabulary
    ("J", b"\xe1"),
    ("Q", b"\xe2"),
    ("X", range(0xF0, 0x100)),
    ("0", range(0x80, 0x84)),  # what mostly follows Q, and J in Georgian
    ("1", range(0xBA, 0xBC)),  # what follows J in Vietnamese
    ("2", b"\x9f"),  # what follows X in emoji
)

# Patterns that begin with "/" are of letters, the others of shapes; "1" is the constant.
_TABLE = """
pattern      o200k   cl100k   claude  claude3   gemini   llama3    qwen3 deepseek  mistral
A            13242    11431    48031     9928    13648    11385    11628    19103    26004
d            23853    25223    28938    21951    95075    24959    94441    24247    95023
t             7267     8871     5455     6303     3754     7883     7832    12953     6738
n             8332     3691     4996     1742     2917     4284     4204     9190    26771
p                0        0    20814     7194     6611        0        0        0        0
o           133857    69203    30000    30000   208159    64758   101229   136556   172003
l            30000    54936    30000    35840    30000    30000    30000    59939    30000
g            22634    78642    58242    57372    24122    29332    91371    36721    31312
k            10000    10000    10000    10000    10000    10000    10000    10000    10000
h            14396    75121    88306    88638    19694    10000    40285    34203    19994
i            51482   108356   103847   104113    52599    58841    63074    50784    60814
j            30000    76412    83048    83433    30000    30000    30000    61396    30000
q            33979    30686   159490   120027    40202    30000   145216    47760    58574
w            20000    20000    20000    20000    20000    20000    20000    20000    56580
z           105504   140948   139784   140729    87485   105104    92933    84877   118174
y            73946   114700   142517   144186    88448    78123   101335    89054    79575
u            50000    50000    50000    50000    50000    50000    50000    50000    53459
x           276617   332069   375851   397408   208954   325360   210070   278819   416412
ss            5376     6031    15117    15986     8751     5693     6052     7001     7871
ns          140343   136129   157520   169323   227876   132890   132653   124653   123301
nt          272048   272683   350238   352045   332749   267036   268876   286816   274792
np           58667    68015   128772   181923   190071    64192    75130    78404    59717
na          240144   262281   247177   223964   228940   256585   240861   254046   229541
nA          203076   261496   272824   289505   197131   257052   260583   223354   199032
sa           65874    70566    83490    83930    74649    63967    56937    71977    62693
sA           59434    67432   146576    86106    41201    73522    73551    57763    62129
sp           87142    96261   114028   113036    77937    99842    97622    93404    76401
sd          240701   228527   178000   242661   144374   234958   163750   237163   167721
sl               0        0   225724   264922        0        0        0        0        0
sq          183317   267881    87769    60123   147176   297759        0   177573   150651
si               0   170998        0        0    28168   130320   381693   105452        0
pa          130712   133820   163416   152207   148787   128951   119990   146874   138694
pA          103903   101007   190298   178220   120875    98815    95251   136259   100022
pd          132474   130046    96773   151147    31847   129072    82311   131344    84690
pp           13429    13328        0        0        0    13005    12787    14249    26899
dp           12158     8902    35975    13096    72350     4668     7330    13136     4644
da          177018   171941   192599   186721   122518   173902   122336   176875   121906
dA          332057   342872    68700   146970   221877   386639   368876   327741   302866
aA               0        0    45825    94372        0        0        0        0     5159
Aa           34831    35596    75126    51711    42747    26821    17019    34823    18575
Ad           21262    32694        0    96003    30546    31717    12082    25799        0
aaaa         17878        0    34020     3166    25214    18792    30034     9147    16805
aaaaaaaa       207    34930    75679    10923        0    14589     2529    26523    36545
la           89729    94306    71720    43927    68989   166242    95345   109624    70057
al           54072   117218   130129   127352    46318        0    98380    67116    66500
kkkk        144301   250300   210728   204716   140159   164201   195637   173736   159345
hhhh        222612   151819        0        0   203865   316388   101105   154359   178822
gggg        130807   162980   120699   126194   138956   100880    72093   108199    82453
jjjj         82035   692811        0        0   247099   926394   424767   117220   141515
yyy          76293    92655        0        0    42212    75616        0    67881    38398
ww          120709   195992   156204   156951    66106   114716   111903   118351    22838
/J.         300228   172250   257474   160690   470660   339362   137709        0   423214
/X.         386910   347781   232709   196740   465587   342781   341566   397255   263414
/Q.         671702   745597   227975   414833   446025   676203   595688   842546   560169
/rr          88254   119073   183353   134205    62423   122402   119178    85842   145047
/rv          61553    59273    65223    60667    54081    66080    72727    60217    66938
/rc          54203    61409    91897    75322    54767    48167    42696    35108    34198
/vv          27435    39158    41082    31838    10168    47870    37208    30879    20128
/cc          16345    18034    17066    10515     5549     8480     9449    15766    16911
/ccc         19741    28269    83101    81251    19876    30400    32346    38691    23887
1            59477    54092    30000    83943    53473    72960    38275    30000    32829
"""

# The same, fitted to the upper end of the errors: see `estimate_for` and bench/estimate.py.
_BOUNDS_TABLE = """
pattern         unknown  claude_bound claude3_bound
A                 31431         58241         12310
d                109139         31062         31451
t                  9511         12604          6880
n                 25228          2160          2160
p                 32337         48184         37561
o                272667         32400        102912
l                 83534        136150         48757
g                 10800         10800         10800
k                 56640         30513         35057
h                 61098         51070         62637
i                156800        125635        127831
j                 89106        109246        108848
q                 32400         78626         32400
w                 21600         21600         21600
z                216527        195651        197109
y                141218        170217        170341
u                 54000         54000         54000
x                473791        400597        434213
ss                 6992         10117         14641
ns               232626        261960        188372
nt               476720        401236        499346
np               130187        120590        148810
na               353834        316096        311148
nA               364301        359765        402990
sa               106771        106961        107189
sA                64270        104725         96591
sp                64077         93859         92350
sd               105709        169911        173807
sl                    0         50255             0
sq                    0             0             0
si               243676             0             0
pa               166233        213105        182696
pA                93687        152448        198296
pd                 1327         92559         84681
pp                    0             0             0
dp                77010         49065         55755
da               115926        204489        185531
dA               110856         76837        202684
aA                83685             0        107429
Aa                    0        106468         67033
Ad                    0         54796             0
aaaa                  0         10192          1389
aaaaaaaa          67046        161266         57245
la               258824         16927         47184
al                    0        141817        216791
kkkk             131527        258342        232857
hhhh             455137        331987        269745
gggg             634777        550110        550518
jjjj             727008             0             0
yyy              171476             0             0
ww               181637        199442        198352
/J.              487264        524161        477190
/X.              411493        298330        307920
/Q.                   0             0             0
/rr              384819        345367        236357
/rv               73113        128127         61001
/rc                   0         17908         70859
/vv               19882         58212         54697
/cc                 843         19869             0
/ccc              59609         99523         91102
1                512535        546315        409890
"""

_HEAD, *_ROWS = (
    [*split_words(line), *split_words(bounds_line)[1:]]
    for line, bounds_line in zip(
        split_lines(_TABLE.strip("\n")), split_lines(_BOUNDS_TABLE.strip("\n")), strict=True
    )
)
_SHAPE_PATTERNS = tuple(name.encode() for name, *_ in _ROWS if name[0] not in "/1")
_LETTER_PATTERNS = tuple(name[1:].encode() for name, *_ in _ROWS if name[0] == "/")

_FREQUENT_SHAPES = b"as"  # the table has no row for either alone
_OTHER_SHAPES = b"otndpAlgkhijqwzyux"
_RARE_LETTERS = b"JQX"

FAMILIES = tuple(_HEAD[1:])
"""Tokenizers the tables are fitted to. `claude` is Claude 4.7 and later, `claude3` what came before.

`unknown` is for models whose tokenizer nobody knows. It and the other bounds are too high by design, so that
all but one in a hundred texts have fewer tokens than estimated: a request that is longer than its estimate
may not fit the window, and what is reported for the first answer corrects the others.
"""

PATTERNS = tuple(row[0] for row in _ROWS)
"""What `features` counts, as the table names it."""


class _PatternWeights(NamedTuple):
    """Patterns of shapes and of letters, each with its weight, and the constant."""

    shapes: list[tuple[bytes, int]]
    letters: list[tuple[bytes, int]]
    constant: int


@cache
def _weights_of(family: str) -> _PatternWeights:
    """One column of the table. Patterns that weigh nothing are left out, since counting them takes time.

    The rows of the table are in the order of the patterns: first those of shapes, then those of letters, then
    the constant.
    """
    column = _HEAD.index(family)
    weights = [int(row[column]) for row in _ROWS]
    shapes = zip(_SHAPE_PATTERNS, weights, strict=False)
    letters = zip(_LETTER_PATTERNS, weights[len(_SHAPE_PATTERNS) :], strict=False)
    return _PatternWeights(
        shapes=[(pattern, weight) for pattern, weight in shapes if weight],
        letters=[(pattern, weight) for pattern, weight in letters if weight],
        constant=weights[-1],
    )
