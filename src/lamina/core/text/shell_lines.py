"""What a shell command line does: which files it writes, which lines it shows, whether it changes anything.

A command line is split into clauses at its operators: `cat a.py | head -5` has the clauses `cat a.py` and
`| head -5`. Nothing is run and nothing is expanded. A line in which a shell would expand something
(`echo "$HOME"`) cannot be split, and only `changes_something` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_blank, split_words, word_set

_LONGEST_LINE = 4096  # characters of a command line that are worth splitting


# Programs that change something: their output is a receipt.
_CHANGING_PROGRAMS = word_set(
    "rm rmdir mv cp ln mkdir touch chmod chown kill pkill killall patch dd truncate"
) | (word_set("curl wget"))
# Programs that change something with one of the commands below (`git commit`), and nothing with others.
_PROGRAMS_WITH_COMMANDS = word_set("git gh npm pnpm yarn pip pip3 uv cargo go apt apt-get brew docker") | (
    word_set("kubectl systemctl")
)
_CHANGING_COMMANDS = (
    word_set("add am api apply cherry-pick checkout clean clone close comment commit create delete deploy")
    | word_set(
        "destroy down edit get init install merge mv publish pull push rebase remove reopen reset restart"
    )
    | word_set("restore revert review rm start stash stop switch uninstall up update upgrade")
)
# A program and up to three words after it: in `cd x && sudo git -C y commit` first `cd` and `x`, then `git`
# and `-C y commit`.
_PROGRAM = re.compile(
    r"(?:^|[;&|(\n])[ \t]*(?:sudo[ \t]+)?([A-Za-z0-9_][A-Za-z0-9_.+-]*)"
    rf"((?:[ \t]+[^{WHITE_SPACE};&|]+){{0,3}})"
)
# One piece of a command line. `quiet` is `2>&1` or `2>/dev/null`, which change neither files nor words; `raw`
# stands between single quotes, `soft` between double quotes and holds nothing that a shell would expand.
_LEXEME = re.compile(
    rf"(?P<quiet>(?<![^{WHITE_SPACE}])2> ?(?:&1|/dev/null)(?![^{WHITE_SPACE}]))"
    r"|(?P<operator>&&|\|\||>>|<<-?|[;|&<>\n])|(?P<space>[ \t]+)"
    r"|'(?P<raw>[^']*)'|\"(?P<soft>[^\"$`\\]*)\"|(?P<plain>[A-Za-z0-9_@%+=:,./~^\x80-\U0010ffff-]+)"
)
_PARTS_OF_WORDS = frozenset(("raw", "soft", "plain"))
_PLAIN_OPERATORS = frozenset(("|", ">", ">>", "<", "<<", "<<-"))
_REDIRECTIONS = frozenset((">", ">>"))
_IN_PLACE = re.compile("-i|--in-place")
# `cat FILE`, `head -n 20 FILE`, `tail -n +5 FILE`, `sed -n 'A,Bp' FILE`, also behind `cat FILE |`. It matches
# operators and words with a NUL in front of each. The groups are named like the arguments of tools that read
# files, so that both are understood in one place.
_SHOWN_LINES = re.compile(
    r"(?:\0(?:cat|nl)(?:\0-[^\0]*)*\0(?P<path>[^\0-][^\0]*)\0\|)?"
    r"\0(?:(?:cat|nl|less|more)(?:\0-[^\0]*)*|head\0-(?:n\0?)?(?P<limit>[0-9]+)"
    r"|tail\0(?:-\+(?P<offset>[0-9]+)|(?P<start>-[1-9][0-9]*))"
    r"|sed\0-n\0(?P<startline>[0-9]+),(?:(?P<endline>[0-9]+)|\$)p)"
    r"(?:\0(?P<file>[^\0;|&<>\n-][^\0]*))?"
)


class ShellClause(NamedTuple):
    """The words between two operators, and the operator in front of them ("" for the first clause)."""

    operator: str
    words: list[str]


def split_clauses(line: str) -> list[ShellClause] | None:
    """The clauses of a command line; None if a shell would expand anything in it.

    The body of a here-document (`cat > a.txt <<EOF`, lines, `EOF`) is left out if nothing follows it.
    """
    first_line, _, body = line.partition("\n")
    if body:
        clauses = _split_plain_clauses(first_line)
        if clauses is not None and _is_whole_document(body, clauses):
            return clauses
    return _split_plain_clauses(line)


def _is_whole_document(body: str, clauses: Sequence[ShellClause]) -> bool:
    """Whether `body` is one here-document that the clauses begin, and nothing more.

    After `cat > a.txt <<EOF`, it is some lines, the line `EOF`, and at most white space.
    """
    end_marks = [clause.words[0] for clause in clauses if clause.operator.startswith("<<") and clause.words]
    if len(end_marks) != 1:
        return False
    after_document = f"\n{body}".partition(f"\n{end_marks[0]}")[2]
    return is_blank(after_document)


def _split_plain_clauses(line: str) -> list[ShellClause] | None:
    """As `split_clauses`, but a here-document is not recognised.

    `shlex` is of no use here, because it cannot tell a quoted `>` from an operator.
    """
    if len(line) > _LONGEST_LINE:
        return None
    # Each word is a list of its pieces: `'a b'.py` is one word of two pieces.
    clauses: list[tuple[str, list[list[str]]]] = [("", [])]
    position = 0
    continues_word = False
    while position < len(line):
        lexeme = _LEXEME.match(line, position)
        if lexeme is None:
            return None
        position = lexeme.end()
        kind = lexeme.lastgroup or ""
        if kind == "operator":
            clauses.append((lexeme[0], []))
        elif kind in _PARTS_OF_WORDS:
            words = clauses[-1][1]
            if continues_word:
                words[-1].append(lexeme[kind])
            else:
                words.append([lexeme[kind]])
        continues_word = kind in _PARTS_OF_WORDS
    return [ShellClause(operator, ["".join(pieces) for pieces in words]) for operator, words in clauses]


def written_files(clauses: Sequence[ShellClause]) -> list[str]:
    """The files that a command line plainly writes or removes.

    They are `FILE` in `echo x > FILE`, `sed -i s/a/b/ FILE`, `tee FILE` and `rm FILE`. A line of several
    commands, and one that redirects twice, is not plain.
    """
    operators = [clause.operator for clause in clauses[1:]]
    if not _PLAIN_OPERATORS.issuperset(operators):
        return []
    targets = [clause.words for clause in clauses if clause.operator in _REDIRECTIONS]
    match targets:
        case []:
            pass
        case [[target]]:
            return [target]
        case _:
            return []
    program_at = 0
    if operators.count("|") == 1:
        program_at = operators.index("|") + 1
    return _operands_written(clauses[program_at].words)


def _operands_written(words: Sequence[str]) -> list[str]:
    """The files that one command writes by itself, without a redirection.

    `sed -i` has the file behind its script; `tee` and `rm` have nothing but files.
    """
    operands = [word for word in words[1:] if not word.startswith("-")]
    match words[:1]:
        case ["tee" | "rm"]:
            return operands
        case ["sed"] if any(_IN_PLACE.match(word) for word in words[1:]):
            return operands[-1:]
        case _:
            return []


def changes_something(line: str) -> bool:
    """Whether any program in a command line is one that changes files, repositories or services.

    `rm a.py`, `cd x && git commit` and `sudo systemctl restart web` do; `git status` and `cargo test` do not.
    """
    for program, arguments in _PROGRAM.findall(line):
        if program in _CHANGING_PROGRAMS:
            return True
        if program in _PROGRAMS_WITH_COMMANDS and not _CHANGING_COMMANDS.isdisjoint(split_words(arguments)):
            return True
    return False


def read_shown_lines(clauses: Sequence[ShellClause]) -> dict[str, str]:
    """The file and the lines that a command line shows, named like the arguments of a tool that reads files.

    `sed -n 5,9p a.py` gives `{"startline": "5", "endline": "9", "file": "a.py"}`; a line that shows no file
    gives an empty dict.
    """
    words: list[str] = []
    for clause in clauses:
        words += [clause.operator, *clause.words]
    line = "\0".join(words).replace("\0tail\0-n\0", "\0tail\0-")
    match = _SHOWN_LINES.fullmatch(line)
    if match is None:
        return {}
    return {name: value for name, value in match.groupdict().items() if value}
