"""How many tokens a text has, from its bytes alone: no vocabulary, no model, no native code.

The bytes are translated to classes (letters, digits, spaces, punctuation, the script of a lead byte);
classes and class transitions are counted and weighed with coefficients fitted per family of
tokenizers. It does not know the tokenizer's words, so it is off by a few per cent on most text and by
half on odd text; `bench/estimate.py` prints by how much, and fits the table. Integers throughout: the
same text has the same estimate everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

UNIT = 100_000
"""The table is in units of 1e-5 token."""


def estimate(text: str, *, family: str = "o200k") -> int:
    """Tokens of `text`, rounded up; never more than its UTF-8 bytes, which bound every byte-level tokenizer."""
    data = text.encode("utf-8", "surrogatepass")
    if not data:
        return 0
    shapes, letters, constant = _weights(family)
    shape, letter = data.translate(_SHAPE, _CONTINUATION), data.translate(_LETTER)
    total = constant
    total += sum(weight * shape.count(pattern) for pattern, weight in shapes)
    total += sum(weight * letter.count(pattern) for pattern, weight in letters)
    return min(len(data), -(-total // UNIT))


def features(text: str) -> list[int]:
    """What the coefficients weigh, in the order of the table: for fitting."""
    data = text.encode("utf-8", "surrogatepass")
    shape, letter = data.translate(_SHAPE, _CONTINUATION), data.translate(_LETTER)
    return [*(shape.count(it) for it in _SHAPES), *(letter.count(it) for it in _LETTERS), 1]


def _classes(rest: str, *classes: tuple[str, Iterable[int]]) -> bytes:
    """A table for `bytes.translate`; a later class overrides an earlier one."""
    table = bytearray(rest.encode() * 256)
    for name, members in classes:
        for byte in members:
            table[byte] = ord(name)
    return bytes(table)


_CONTINUATION = bytes(range(0x80, 0xC0))

_SHAPE = _classes(
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

_LETTER = _classes(
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
A            15672    15782    57502    19214    11500    14543    15416    23689    27943
d            29921    30667    24038    25293    97257    30907    97618    30731    99267
t             9391    11065     7963     7149     3959    10313    10258    16069     9066
n             7523     2286     5509     1752     4707     3436     3361     8430    26858
p              203        0    31363    10508     6914        0        0     9763    22829
o           158051    80648    30000    32489   217178    85245   114020   166949   188012
l            62219   123980    40249    87864    62719        0   108858    83868    50995
g                0    57221        0        0        0        0    79712        0        0
k            22247    55533    13740     8809    15891    34867    49681    44437    32535
h             8536    65090    87420    88748    13410        0    35761    23583    16618
i            54164   111285   106744   107250    55939    61081    67209    54894    62673
j                0    71678    83332    83822        0        0        0    50821        0
q                0        0   122800    95421        0        0   151232    23338        0
w            21398    26475        0        0        0        0    33839        0    45486
z            99641   135170   136538   137294    85029   100897    87019    81601   114119
y            79699   117590   142728   144161    88914    77417    84951    83216    73340
u            50000    50000    50000    50000    50000    50000    50000    50000   119614
x           283863   337057   378475   402173   214153   335504   213786   285335   428179
ss            2000     2847    10683    13571     5086     2151     2141     2000     2000
ns          146333   138134   153173   176968   234755   137583   137148   132524   117471
nt          313903   308269   348841   386470   361731   307822   297670   318055   296320
np           63903    69934   130458   192012   181365    62368    67244    46933    12029
na          250768   265141   174994   183673   210838   260142   235648   243098   229260
nA          200572   241608   240550   242263   211387   248367   246185   223000   204961
sa           73534    74072    78237    82684    76410    73949    63359    80249    69763
sA           28519    29098    72154     9719    43817    38337    33581    26094    41667
sp          106691   115427   107896   121036    86801   117754   117555   103588    77663
sd          171630   169496   210000   201477   110761   169447   121804   168381   117322
sl           34988    35634   374036   247492    35110   108815    15120    77620    65259
sq          327547   351179   124067    13351   341281   423393        0   275087   315154
si               0   159762        0        0    20298   120725   386829   100457        0
pa          133181   131430   147034   147597   154910   133411   122364   146201   124722
pA           67080    55248   131600   104066   111311    59796    61812    93754    54789
pd          107981   115721    84786   141973    24517   109507    67310    90174    50134
pp           15361    16185        0        0        0    16263    15958        0     2573
dp           32311    17151    64238    20420    83224    19974    20670    34745     2869
da          163571   162826   206024   181848   117515   162765   117497   163804   114064
dA          135345   151055    65004    51113    96249   152382   158294   149036   169425
aA               0        0        0    44583        0        0        0      779    12454
Aa           54815    53689    95757   102629    40929    49697    34637    50570    36262
Ad           71233    92122        0   123642    98657   101041    88862    62227    18499
aaaa             0        0    39471        0    10394     2249    18609        0      122
aaaaaaaa     11012    17121    44460        0        0    16891        0    31600    45012
la           62147    59648    86787    90092    40502   164481    50017    94867    22184
al               0    20824    77995     2387        0        0    12990     3086    50470
kkkk         93208    20698   195467   220934   117064    46328        0        0    43796
hhhh        262802   217547     6015     3734   242340   378919   130710   222021   200965
gggg        262495   291297   462643   463688   274665   269526   139597   323409   261115
iiii             0        0        0        0        0        0        0        0        0
jjjj        227037   723455        0        0   405257  1087403   581136   177110   286973
yyy          19003    48683        0        0    17020    48808    50492    61615    38123
ww          116188   174286   196703   196793   104011   159280    78979   160165    48120
/J.         408309   346584   525433   471978   440641   248541   244398   386271   485308
/X.         571629   238298    53136    33954   217464        0   436993   549699    94621
/Q.              0   977832   631008   690392  1395340  2030298   195035        0   933103
/r           19202     3269        0        0    13505        0        0        0     3938
/rr          56281    93175   187713   108546    46791   101958    94535    82588    86362
/rv          56197    76099    99800    79207    56449    87829    91006    73422    75727
/rc          63151    87737   101348    95047    60281    91670    71430    70039    57788
/vv          25723    26869    42274    34346    14414    38055    26336    21951    22689
/cc          20061    18822    18869    14832    11731    13086    15861    12485    16900
/ccc         20016    25694    82101    70962    25569    28554    24800    40259    23011
1            30000    30000    93085    86487    55091    30000    30000    30000    47484
"""

_HEAD, *_ROWS = (line.split() for line in _TABLE.strip().splitlines())
_SHAPES = tuple(name.encode() for name, *_ in _ROWS if name[0] not in "/1")
_LETTERS = tuple(name[1:].encode() for name, *_ in _ROWS if name[0] == "/")

FAMILIES = tuple(_HEAD[1:])
"""Tokenizers the table is fitted to. `claude` is Claude 4.7 and later, `claude3` what came before."""

PATTERNS = tuple(row[0] for row in _ROWS)
"""What `features` counts, as the table names it."""


@cache
def _weights(family: str) -> tuple[tuple[tuple[bytes, int], ...], tuple[tuple[bytes, int], ...], int]:
    """Shapes and letters with their weights, and the constant; what weighs nothing is not counted."""
    column = _HEAD.index(family)
    weights = [int(row[column]) for row in _ROWS]
    shapes = zip(_SHAPES, weights, strict=False)
    letters = zip(_LETTERS, weights[len(_SHAPES) :], strict=False)
    return tuple(it for it in shapes if it[1]), tuple(it for it in letters if it[1]), weights[-1]
