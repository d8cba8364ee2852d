"""What a tool call was about: a verb, a resource and a range of lines, read from its name and arguments.

A table of readers, tried in order. This file refuses to know what a result says, which files exist and
where a shell stands: where names and arguments do not tell, a call has no subject.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii, split_words
from lamina.core.text.nesting import is_deeper
from lamina.core.text.paths import shortest_path


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a call was about.

    `verb` is "read", "write", "list", "search" or "call". `resource` is a normalised path or the
    canonical call; a write may name several paths, one per line. `start` and `end` are the first and
    last line of a read, None where it has no limit; a negative `start` counts from the end.
    """

    verb: str
    resource: str
    start: int | None = None
    end: int | None = None


class ReadableCall(Protocol):
    """What a reader sees of a call."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...


SubjectReader = Callable[[ReadableCall], Subject | None]
_Clause = tuple[str, list[str]]


def _set(words: str) -> frozenset[str]:
    return frozenset(split_words(words))


# Words of tool names. The first known word decides, so that `get_order` is a query and `order_meal` is
# not; words that leave no doubt decide wherever they stand, as in `search_and_replace`.
_ALWAYS_CHANGE = _set("write edit replace create insert delete remove patch append overwrite writefile")
_CHANGE_FILES = _ALWAYS_CHANGE | _set("update apply rm undo modify save put")
_VERBS: dict[str, frozenset[str]] = {
    "write": _CHANGE_FILES
    | _set("mv move rename cp copy touch mkdir post send reply comment book order buy pay charge refund")
    | _set("cancel exchange transfer submit publish deploy commit push merge upload install set add start")
    | _set("stop kill restart spawn schedule assign close approve reject execute exec"),
    "list": _set("list ls glob find tree dir listdir pwd"),
    "search": _set("search grep rg lookup"),
    "call": _set("read view cat open show load get query fetch check status describe count calculate diff")
    | _set("log logs test tests lint diagnostics inspect browse output poll snapshot screenshot history")
    | _set("info resolve retrieve select validate"),
}
_OPEN = _set("read view cat open show load get readfile")
# A tool whose name says more than this (`get_file_outline`) shows something other than the file's lines.
_ABOUT_FILES = _OPEN | _set("file files text content contents notebook image media lines range tool resource")
_SHELLS = _set("bash sh zsh shell terminal console powershell pwsh exec execute command cmd run")
_EDITORS = _set("edit editor memory")

# Names of arguments, without case, `_` and `-`.
_PATHS = _set("path paths file filepath filename notebookpath uri fileuri targetfile targetpath absolutepath")
_FIRST = ("offset", "startline", "linestart", "start", "fromline", "startlineoneindexed")
_LAST = ("endline", "lineend", "end", "toline", "endlineoneindexedinclusive")
_PAIR = ("viewrange", "linerange", "range", "lines")
_LINES = frozenset((*_FIRST, *_LAST, *_PAIR, "limit"))
_ASIDES = _set("description explanation justification reason purpose thought timeout timeoutms")
_ELSEWHERE = _set("owner repo repository branch ref revision bucket host server")

# Programs, and commands of programs, whose output is a receipt.
_CHANGE = _set("rm rmdir mv cp ln mkdir touch chmod chown kill pkill killall patch dd truncate curl wget")
_TAKE_COMMANDS = _set("git gh npm pnpm yarn pip pip3 uv cargo go apt apt-get brew docker kubectl systemctl")
_COMMANDS = (
    _set("add am api apply cherry-pick checkout clean clone close comment commit create delete deploy")
    | _set("destroy down edit get init install merge mv publish pull push rebase remove reopen reset restart")
    | _set("restore revert review rm start stash stop switch uninstall up update upgrade")
)
_HEADS = re.compile(
    r"(?:^|[;&|(\n])[ \t]*(?:sudo[ \t]+)?([A-Za-z0-9_][A-Za-z0-9_.+-]*)"
    rf"((?:[ \t]+[^{WHITE_SPACE};&|]+){{0,3}})"
)

_DEEPEST, _LONGEST = 200, 4096
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)([^\n\t]+)", re.MULTILINE)
_LEXEME = re.compile(
    rf"(?P<quiet>(?<![^{WHITE_SPACE}])2> ?(?:&1|/dev/null)(?![^{WHITE_SPACE}]))"
    r"|(?P<operator>&&|\|\||>>|<<-?|[;|&<>\n])|(?P<space>[ \t]+)"
    r"|'(?P<raw>[^']*)'|\"(?P<soft>[^\"$`\\]*)\"|(?P<plain>[A-Za-z0-9_@%+=:,./~^\x80-\U0010ffff-]+)"
)
# Over words behind NULs. The groups are named like arguments, so that one function understands both.
_SHOWN = re.compile(
    r"(?:\0(?:cat|nl)(?:\0-[^\0]*)*\0(?P<path>[^\0-][^\0]*)\0\|)?"
    r"\0(?:(?:cat|nl|less|more)(?:\0-[^\0]*)*|head\0-(?:n\0?)?(?P<limit>[0-9]+)"
    r"|tail\0(?:-\+(?P<offset>[0-9]+)|(?P<start>-[1-9][0-9]*))"
    r"|sed\0-n\0(?P<startline>[0-9]+),(?:(?P<endline>[0-9]+)|\$)p)"
    r"(?:\0(?P<file>[^\0;|&<>\n-][^\0]*))?"
)


def _file(call: ReadableCall) -> Subject | None:
    """Tools whose name says that they read or change files; an editor's `command` stands for its name."""
    words, given = _words(call.name), _given(call)
    if not _EDITORS.isdisjoint(words) and isinstance(given.get("command"), str):
        words = _words(given.pop("command"))
    if _ABOUT_FILES.issuperset(words) and not _OPEN.isdisjoint(words):
        return _lines_read(given) or Subject(verb="read", resource=_canonical(call))
    if _verb(words) != "write" or _CHANGE_FILES.isdisjoint(words):
        return None
    return _writes([_path(given)]) if given.keys().isdisjoint(_ELSEWHERE) else None


def _lines_read(given: Mapping[str, Any], folder: str = "") -> Subject | None:
    """A read of lines of one path, if every argument is understood."""
    path, span = _path(given, folder), _span(given)
    if path is None or span is None or given.keys() - _PATHS - _LINES:
        return None
    return Subject(verb="read", resource=path, start=span[0], end=span[1])


def _writes(paths: Iterable[str | None]) -> Subject | None:
    known = [path for path in dict.fromkeys(paths) if path and path != "/dev/null"]
    return Subject(verb="write", resource="\n".join(known)) if known else None


def _patch(call: ReadableCall) -> Subject | None:
    """Patches that name their files in their own text."""
    words = _words(call.name)
    if _verb(words) != "write" or {"patch", "diff"}.isdisjoint(words):
        return None
    given = _given(call) or {"": call.arguments}
    return _patched("\n".join(value for value in given.values() if isinstance(value, str)))


def _patched(text: str, folder: str = "") -> Subject | None:
    return _writes(_normal(path.strip(WHITE_SPACE), folder) for path in _PATCHED.findall(text))


def _query(call: ReadableCall) -> Subject | None:
    """Other tools that look like questions, by their equal arguments."""
    verb = _verb(_words(call.name))
    if verb is None or verb == "write" or _command(call):
        return None
    return Subject(verb=verb, resource=_canonical(call))


def _words(name: str) -> list[str]:
    """The words of a tool's own name, without the server or namespace in front of it."""
    own = re.split(r"__|[.:/]", name[-_LONGEST:])[-1]
    return [lower_ascii(word) for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", own)]


def _verb(words: list[str]) -> str | None:
    if not _ALWAYS_CHANGE.isdisjoint(words):
        return "write"
    return next((verb for word in words for verb, known in _VERBS.items() if word in known), None)


def _decoded(text: str) -> Any:
    """JSON, or None if it is not JSON or nested too deeply."""
    if is_deeper(text, _DEEPEST):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _canonical(call: ReadableCall) -> str:
    known = _decoded(call.arguments)
    text = call.arguments if known is None else json.dumps(known, sort_keys=True, separators=(",", ":"))
    return f"{call.name} {text}"


def _given(call: ReadableCall) -> dict[str, Any]:
    """The arguments that say something, by plain name; empty if they are no JSON object."""
    known = _decoded(call.arguments)
    pairs = known.items() if isinstance(known, dict) else ()
    plain = {lower_ascii(re.sub("[_-]", "", name)): value for name, value in pairs if value is not None}
    return {name: value for name, value in plain.items() if name not in _ASIDES}


def _pick(given: Mapping[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if name in given), None)


def _path(given: Mapping[str, Any], folder: str = "") -> str | None:
    found = [value for name, value in given.items() if name in _PATHS]
    if len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    return _normal(found[0], folder) if len(found) == 1 and isinstance(found[0], str) else None


def _normal(path: str, folder: str) -> str | None:
    """A path in its shortest spelling; None for what cannot be one. Nothing is looked up."""
    path = path.removeprefix("file://")
    if is_blank(path) or "\n" in path:
        return None
    return path if "://" in path else shortest_path(posixpath.join(folder, path.replace("\\", "/")))


def _span(given: Mapping[str, Any]) -> tuple[int | None, int | None] | None:
    """First and last line of a read, None for no limit; None altogether if they make no sense."""
    pair = _pick(given, *_PAIR) or [_pick(given, *_FIRST), _pick(given, *_LAST)]
    try:
        first, last = map(_number, pair if isinstance(pair, list) else ())
        limit = _number(given.get("limit"))
    except ValueError:
        return None
    first = None if first in {0, 1} else first
    last = (None if last == -1 else last) if limit is None else (first or 1) + limit - 1
    return None if last is not None and not 0 < (first or 1) <= last else (first, last)


def _number(value: Any) -> int | None:
    if value is not None and not re.fullmatch(r"-?[0-9]{1,9}(?:\.0)?", str(value)):
        raise ValueError(value)
    return None if value is None else int(float(value))


def _shell(call: ReadableCall) -> Subject | None:
    """Command lines: what they write, what they show, else what they observe; None for a receipt."""
    found = _command(call)
    if found is None:
        return None
    folder, text = found
    clauses = _parsed(text) or [("", [])]
    if len(clauses) > 1 and clauses[1][0] == "&&" and clauses[0][1][:-1] == ["cd"]:
        folder = posixpath.join(folder, clauses[0][1][1])
        clauses = [("", clauses[1][1]), *clauses[2:]]
    if text.startswith("apply_patch"):
        return _patched(text, folder)
    changed = _writes(_normal(path, folder) for path in _targets(clauses))
    if changed or _changes(text):
        return changed
    return _shown(clauses, folder) or _observed(clauses, folder, text)


def _command(call: ReadableCall) -> tuple[str, str] | None:
    """The folder and the command line of a call of a shell."""
    given = {} if _SHELLS.isdisjoint(_words(call.name)) else _given(call)
    command = _pick(given, "command", "cmd", "script")
    folder = _pick(given, "workdir", "cwd", "workingdirectory")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = command[-1] if command[1:2] in (["-c"], ["-lc"]) else shlex.join(command)
    text = command.strip(WHITE_SPACE) if isinstance(command, str) else ""
    return (folder if isinstance(folder, str) else "", text) if text else None


def _parsed(text: str) -> list[_Clause] | None:
    """As `_clauses`, without the body of a here-document if nothing follows it."""
    head, _, body = text.partition("\n")
    clauses = _clauses(head) if body else None
    marks = [words[0] for operator, words in clauses or () if operator.startswith("<<") and words]
    if len(marks) == 1 and is_blank(f"\n{body}".partition(f"\n{marks[0]}")[2]):
        return clauses
    return _clauses(text)


def _clauses(text: str) -> list[_Clause] | None:
    """The words between operators, behind the operator before them; None if a shell would expand anything.

    `shlex` does not tell a quoted `>` from an operator.
    """
    if len(text) > _LONGEST:
        return None
    clauses: list[tuple[str, list[list[str]]]] = [("", [])]
    place, glued = 0, False
    while place < len(text):
        match = _LEXEME.match(text, place)
        if match is None:
            return None
        kind, place, adjoins = match.lastgroup or "", match.end(), glued
        glued = kind in {"raw", "soft", "plain"}
        if kind == "operator":
            clauses.append((match[0], []))
        elif glued and adjoins:
            clauses[-1][1][-1].append(match[kind])
        elif glued:
            clauses[-1][1].append([match[kind]])
    return [(operator, ["".join(word) for word in words]) for operator, words in clauses]


def _targets(clauses: list[_Clause]) -> list[str]:
    """The files that a command line plainly writes."""
    operators = [operator for operator, _ in clauses[1:]]
    if not {"|", ">", ">>", "<", "<<", "<<-"}.issuperset(operators):
        return []
    redirected = [words for operator, words in clauses if operator in {">", ">>"}]
    if redirected:
        return redirected[0] if len(redirected) == len(redirected[0]) == 1 else []
    program, *words = clauses[operators.index("|") + 1 if operators.count("|") == 1 else 0][1] or [""]
    operands = [word for word in words if not word.startswith("-")]
    if program == "sed" and any(re.match("-i|--in-place", word) for word in words):
        return operands[-1:]
    return operands if program in {"tee", "rm"} else []


def _changes(text: str) -> bool:
    return any(
        program in _CHANGE or (program in _TAKE_COMMANDS and not _COMMANDS.isdisjoint(split_words(words)))
        for program, words in _HEADS.findall(text)
    )


def _shown(clauses: list[_Clause], folder: str) -> Subject | None:
    """`cat FILE`, `sed -n 'A,Bp' FILE` and their like, also behind a `cat FILE |`."""
    line = "\0".join(word for operator, words in clauses for word in (operator, *words))
    match = _SHOWN.fullmatch(line.replace("\0tail\0-n\0", "\0tail\0-"))
    given = match.groupdict() if match else {}
    return _lines_read({name: value for name, value in given.items() if value}, folder)


def _observed(clauses: list[_Clause], folder: str, text: str) -> Subject:
    """Anything else, by the equal command in the equal folder; spaces between words do not count."""
    words = clauses[0][1] if len(clauses) == 1 else []
    verb = _verb(words[:1])
    line = shlex.join(words) if words else text
    return Subject(verb=verb if verb in {"list", "search"} else "call", resource=f"{folder}$ {line}")


SUBJECTS: tuple[SubjectReader, ...] = (_shell, _patch, _file, _query)
"""The readers, tried in order. Put your own in front: the first that knows a call decides."""


def subject(call: ReadableCall, *, table: tuple[SubjectReader, ...] = SUBJECTS) -> Subject | None:
    """What a call was about; None if its result neither replaces another nor can be replaced."""
    return next((about for about in (reader(call) for reader in table) if about is not None), None)


def replaced(subjects: Iterable[tuple[Subject | None, bool]]) -> dict[int, int]:
    """Of calls in order, by subject and whether they failed: each that is outdated, and by which one.

    A successful read replaces earlier reads of lines that it contains, a successful write all earlier
    reads of its paths. Writes are receipts and stay. Anything else is replaced by its own repetition.
    """
    writes: dict[str, int] = {}
    groups: dict[tuple[str, str], list[_Seen]] = defaultdict(list)
    for index, (about, failed) in enumerate(subjects):
        if about is not None and about.verb != "write":
            groups[about.verb, about.resource].append(_seen(about, index, failed=failed))
        elif about is not None and not failed:
            writes.update(dict.fromkeys(about.resource.split("\n"), index))
    found = (
        (old, max(new, writes.get(resource, -1) if verb == "read" else -1))
        for (verb, resource), group in groups.items()
        for old, new in _containing(group)
    )
    return dict(sorted((old, new) for old, new in found if new > old))


_Seen = tuple[tuple[int, int], tuple[int, int], int, bool]
"""Where it begins, where it ends (greater contains), which exchange it was, whether it can replace others."""


def _seen(about: Subject, index: int, *, failed: bool) -> _Seen:
    """Lines counted from the start and from the end cannot be compared: only a whole read contains both."""
    if failed:  # it shows nothing, so any success contains it; a call that fails again is news all the same
        return (2, 0), (-1, 0), index, about.verb == "call"
    if about.start is not None and about.start < 0:
        return (1, about.start), (2, 0), index, True
    first = about.start or 1
    return (0, first), (1 + (first == 1), 0) if about.end is None else (0, about.end), index, True


def _containing(group: list[_Seen]) -> Iterator[tuple[int, int]]:
    """For each of the group the latest that contains it, itself excepted, or -1.

    Sorted by beginning, so that whatever may contain an item comes before it; the latest of those that
    end no earlier is then the maximum of a prefix of the ends, kept in a Fenwick tree: n log n.
    """
    ends = sorted({end for _, end, _, _ in group}, reverse=True)
    rank = {end: place for place, end in enumerate(ends, start=1)}
    latest = [-1] * (len(ends) + 1)
    for _, end, index, counts in sorted(group, key=lambda seen: (seen[0], rank[seen[1]], -seen[2])):
        place, best = rank[end], -1
        while place:
            best, place = max(best, latest[place]), place & (place - 1)
        yield index, best
        place = rank[end] if counts else len(latest)
        while place < len(latest):
            latest[place], place = max(latest[place], index), place + (place & -place)
