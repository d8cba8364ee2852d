"""What a tool call was about: a verb, a resource and a range of lines, read from its name and arguments.

`read_file(path="a.py", offset=10)` and `sed -n '10,$p' a.py` are both a read of `a.py` from line 10 on. A
table of readers is tried in order. They do not know what a result says, which files exist, or in which
folder a shell is: if the name and the arguments do not tell, a call has no subject.

Tools name the same argument differently: `path`, `filePath` and `target_file` are all a path here. Of a name
such as `get_order` or `order_meal` the first word with a known meaning decides; a few words, such as
`replace` in `search_and_replace`, mean a change wherever they appear.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec

from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii, word_set
from lamina.core.text.json_text import DEEPEST_ARGUMENTS, decode_json
from lamina.core.text.shell_lines import (
    ShellClause,
    changes_something,
    read_shown_lines,
    split_clauses,
    written_files,
)

_LONGEST_NAME = 4096  # characters of a tool's name that are read, counted from its end

# `mcp__files__read_text` and `files.read_text` end with the tool's own name, behind `__`, `.`, `:` or `/`.
_NAMESPACE_SEPARATOR = re.compile(r"__|[.:/]")
# `readHTTPBody` has the words `read`, `HTTP` and `Body`.
_WORD_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


_ALWAYS_CHANGE = word_set("write edit replace create insert delete remove patch append overwrite writefile")
_CHANGE_FILES = _ALWAYS_CHANGE | word_set("update apply rm undo modify save put")
_VERBS: dict[str, frozenset[str]] = {
    "write": _CHANGE_FILES
    | word_set("mv move rename cp copy touch mkdir post send reply comment book order buy pay charge refund")
    | word_set(
        "cancel exchange transfer submit publish deploy commit push merge upload install set add start"
    )
    | word_set("stop kill restart spawn schedule assign close approve reject execute exec"),
    "list": word_set("list ls glob find tree dir listdir pwd"),
    "search": word_set("search grep rg lookup"),
    "call": word_set(
        "read view cat open show load get query fetch check status describe count calculate diff"
    )
    | word_set("log logs test tests lint diagnostics inspect browse output poll snapshot screenshot history")
    | word_set("info resolve retrieve select validate"),
}
_OPEN_FILES = word_set("read view cat open show load get readfile")
# A tool with any other word in its name (`get_file_outline`) shows something else than the file's lines.
_ABOUT_FILES = _OPEN_FILES | word_set(
    "file files text content contents notebook image media lines range tool resource"
)
_SHELLS = word_set("bash sh zsh shell terminal console powershell pwsh exec execute command cmd run")
_EDITORS = word_set("edit editor memory")

# Names of arguments, without case, `_` and `-`.
PATH_ARGUMENTS = word_set(
    "path paths file filepath filename notebookpath uri fileuri targetfile targetpath absolutepath"
)
_FIRST_LINE_ARGUMENTS = ("offset", "startline", "linestart", "start", "fromline", "startlineoneindexed")
_LAST_LINE_ARGUMENTS = ("endline", "lineend", "end", "toline", "endlineoneindexedinclusive")
_RANGE_ARGUMENTS = ("viewrange", "linerange", "range", "lines")
LINE_ARGUMENTS = frozenset((*_FIRST_LINE_ARGUMENTS, *_LAST_LINE_ARGUMENTS, *_RANGE_ARGUMENTS, "limit"))
# Arguments that do not change what a call does.
_SIDE_ARGUMENTS = word_set("description explanation justification reason purpose thought timeout timeoutms")

_DASHES = re.compile("[_-]")
_INTEGER = re.compile(r"-?[0-9]{1,9}(?:\.0)?")  # `12`, `-3`, and `12.0` as some models write it


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


# Arguments that say that a path is not one of this machine's files.
_REMOTE_ARGUMENTS = word_set("owner repo repository branch ref revision bucket host server")

# `*** Update File: a.py` of an `apply_patch`, and `+++ b/a.py` of a diff.
_PATCHED_FILE = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)([^\n\t]+)", re.MULTILINE)


# Command lines.


class _CommandLine(NamedTuple):
    """What a call gave to a shell, and in which folder ("" if it does not say)."""

    folder: str
    text: str


def _read_shell_call(call: ReadableCall) -> Subject | None:
    """Command lines, by what they write or show, else by their own text; None if all they do is a change.

    `echo x > a.py` writes `a.py`, `head -5 a.py` reads its lines 1 to 5, `git commit` has no subject, and
    `pytest -q` is a question whose answer a later `pytest -q` replaces.
    """
    command = _read_command(call)
    if command is None:
        return None
    clauses = split_clauses(command.text) or [ShellClause("", [])]
    folder, clauses = _enter_folder(command.folder, clauses)
    if command.text.startswith("apply_patch"):
        return _read_patch(command.text, folder)
    written = _write_subject(normalise_path(path, folder) for path in written_files(clauses))
    if written is not None:
        return written
    if changes_something(command.text):
        return None
    lines_read = _read_file_lines(read_shown_lines(clauses), folder)
    if lines_read is not None:
        return lines_read
    return _observe_command(clauses, folder, command.text)


def _read_command(call: ReadableCall) -> _CommandLine | None:
    """The command line of a call of a shell; None for any other tool.

    `{"command": "ls", "cwd": "src"}` and `{"cmd": ["bash", "-lc", "ls"]}` are both understood.
    """
    if not is_shell(split_tool_name(call.name)):
        return None
    arguments = read_arguments(call.arguments)
    command = pick_argument(arguments, "command", "cmd", "script")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = _join_command(command)
    if not isinstance(command, str):
        return None
    text = command.strip(WHITE_SPACE)
    if not text:
        return None
    folder = pick_argument(arguments, "workdir", "cwd", "workingdirectory")
    if not isinstance(folder, str):
        folder = ""
    return _CommandLine(folder, text)


def _join_command(words: list[str]) -> str:
    """One line for a command in words; `["bash", "-lc", LINE]` is the line itself."""
    if words[1:2] in (["-c"], ["-lc"]):
        return words[-1]
    return shlex.join(words)


def _enter_folder(folder: str, clauses: list[ShellClause]) -> tuple[str, list[ShellClause]]:
    """`cd FOLDER && …` as the folder and the clauses after it.

    `cd src && cat a.py` in the folder `app` is `cat a.py` in `app/src`.
    """
    if len(clauses) < 2 or clauses[1].operator != "&&":
        return folder, clauses
    first_words = clauses[0].words
    if first_words[:-1] != ["cd"]:
        return folder, clauses
    entered = posixpath.join(folder, first_words[1])
    return entered, [ShellClause("", clauses[1].words), *clauses[2:]]


def _observe_command(clauses: Sequence[ShellClause], folder: str, text: str) -> Subject:
    """Any other command, by its own words and its folder. Spaces between words do not matter.

    A line of several commands, and one that cannot be split, is compared as the text that it is.
    """
    words: list[str] = []
    if len(clauses) == 1:
        words = clauses[0].words
    verb = find_verb(words[:1])
    if verb not in {"list", "search"}:
        verb = "call"
    line = shlex.join(words) if words else text
    return Subject(verb=verb, resource=f"{folder}$ {line}")


# Patches, files, and other questions.


def _read_patch_call(call: ReadableCall) -> Subject | None:
    """Patches that name their files in their own text.

    Some models write the patch into an argument, others write nothing but the patch.
    """
    if not is_patch_tool(split_tool_name(call.name)):
        return None
    arguments = read_arguments(call.arguments)
    if not arguments:
        return _read_patch(call.arguments)
    return _read_patch("\n".join(value for value in arguments.values() if isinstance(value, str)))


def _read_patch(text: str, folder: str = "") -> Subject | None:
    """A write of the files that a patch names."""
    paths = _PATCHED_FILE.findall(text)
    return _write_subject(normalise_path(path.strip(WHITE_SPACE), folder) for path in paths)


def _read_file_call(call: ReadableCall) -> Subject | None:
    """Tools whose name says that they read or change files; an editor says it in its argument `command`.

    `str_replace_editor(command="view", path="a.py")` reads a file. A tool with an argument such as `repo`
    changes files of another machine, of which no local read shows anything.
    """
    words = split_tool_name(call.name)
    arguments = read_arguments(call.arguments)
    if is_editor(words) and isinstance(arguments.get("command"), str):
        words = split_tool_name(arguments.pop("command"))
    if is_file_reader(words):
        lines_read = _read_file_lines(arguments)
        if lines_read is not None:
            return lines_read
        return Subject(verb="read", resource=_canonical_call(call))
    if not is_file_writer(words) or not arguments.keys().isdisjoint(_REMOTE_ARGUMENTS):
        return None
    return _write_subject([read_path(arguments)])


def _read_query_call(call: ReadableCall) -> Subject | None:
    """Other tools whose name is a question, by their arguments.

    `get_order(id=7)` asks the same as a later `get_order(id=7)`. `order_meal` is an action, and has no
    subject.
    """
    verb = find_verb(split_tool_name(call.name))
    if verb is None or verb == "write":
        return None
    if _read_command(call) is not None:
        return None
    return Subject(verb=verb, resource=_canonical_call(call))


def _read_file_lines(arguments: Mapping[str, Any], folder: str = "") -> Subject | None:
    """A read of lines of one path, if every argument is understood.

    With an argument that nobody here has heard of, the tool may show something else than plain lines.
    """
    path = read_path(arguments, folder)
    line_range = read_line_range(arguments)
    if path is None or line_range is None:
        return None
    if arguments.keys() - PATH_ARGUMENTS - LINE_ARGUMENTS:
        return None
    return Subject(verb="read", resource=path, start=line_range.first, end=line_range.last)


def _write_subject(paths: Iterable[str | None]) -> Subject | None:
    """A write of these paths; None if there are none. What goes to `/dev/null` is not written.

    The paths of one write stand on lines of their own in its resource.
    """
    different_paths = dict.fromkeys(paths)
    resources = [path for path in different_paths if path and path != "/dev/null"]
    if not resources:
        return None
    return Subject(verb="write", resource="\n".join(resources))


def _canonical_call(call: ReadableCall) -> str:
    """The call as one text that does not depend on the order of its arguments."""
    arguments = decode_json(call.arguments, deepest=DEEPEST_ARGUMENTS)
    if arguments is None:
        return f"{call.name} {call.arguments}"
    return f"{call.name} {json.dumps(arguments, sort_keys=True, separators=(',', ':'))}"


SUBJECT_READERS: tuple[SubjectReader, ...] = (
    _read_shell_call,
    _read_patch_call,
    _read_file_call,
    _read_query_call,
)
"""The readers, tried in order: the first that understands a call decides. Put your own in front."""


def read_subject(call: ReadableCall, *, table: tuple[SubjectReader, ...] = SUBJECT_READERS) -> Subject | None:
    """What a call was about; None if its result neither replaces another nor can be replaced.

    The readers of `table` are asked in order, and the first one that understands the call decides.
    """
    # A caller's own reader may look at more than a call, so its answers are not remembered.
    if table is not SUBJECT_READERS or len(call.arguments) > _LONGEST_KNOWN:
        return _ask_readers(call, table)
    return _ask_readers_once(_KnownCall(call.name, call.arguments), table)


class _KnownCall(NamedTuple):
    """A call without its id: two calls that ask for the same are about the same."""

    name: str
    arguments: str


def _ask_readers(call: ReadableCall, table: tuple[SubjectReader, ...]) -> Subject | None:
    for reader in table:
        call_subject = reader(call)
        if call_subject is not None:
            return call_subject
    return None


_LONGEST_KNOWN = 1_000  # characters of arguments that are worth remembering
_ask_readers_once = lru_cache(maxsize=4_000)(_ask_readers)
"""One cut asks for the subject of each call up to three times: how often its result is needed, and what
replaces it, before and after it gave up steps that it would rather have spared."""


def split_tool_name(name: str) -> list[str]:
    """The words of a tool's own name in small letters, without the server or namespace in front of it.

    `mcp__files__readTextFile` has the words `read`, `text` and `file`.
    """
    own_name = _NAMESPACE_SEPARATOR.split(name[-_LONGEST_NAME:])[-1]
    return [lower_ascii(word) for word in _WORD_OF_NAME.findall(own_name)]


def find_verb(words: Sequence[str]) -> str | None:
    """What these words mean: "write", "list", "search" or "call"; None if no word has a known meaning.

    The first word with a meaning decides: `get_order` is a call and `order_meal` a write.
    `search_and_replace` is a write, since `replace` means a change wherever it stands.
    """
    if not _ALWAYS_CHANGE.isdisjoint(words):
        return "write"
    for word in words:
        for verb, verb_words in _VERBS.items():
            if word in verb_words:
                return verb
    return None


def is_file_reader(words: Sequence[str]) -> bool:
    """Whether a tool of this name shows the lines of a file.

    `read_file` and `view` do. `read_email` does not, since `email` is not a word about files.
    """
    return _ABOUT_FILES.issuperset(words) and not _OPEN_FILES.isdisjoint(words)


def is_file_writer(words: Sequence[str]) -> bool:
    """Whether a tool of this name changes files.

    `edit_file` does. `send_mail` is a write too, but no file is different after it.
    """
    return find_verb(words) == "write" and not _CHANGE_FILES.isdisjoint(words)


def is_patch_tool(words: Sequence[str]) -> bool:
    """Whether a tool of this name applies a patch."""
    return find_verb(words) == "write" and ("patch" in words or "diff" in words)


def is_shell(words: Sequence[str]) -> bool:
    """Whether a tool of this name runs command lines."""
    return not _SHELLS.isdisjoint(words)


def is_editor(words: Sequence[str]) -> bool:
    """Whether a tool of this name takes what it does from an argument `command`."""
    return not _EDITORS.isdisjoint(words)


def shortest_path(path: str) -> str:
    """As `posixpath.normpath`, which stops at a NUL on Python 3.11.0 to 3.11.3.

    `./src//a/../b.py` becomes `src/b.py`.
    """
    root = _root_of(path)
    steps: list[str] = []
    for step in path.split("/"):
        if step in {"", "."}:
            continue
        if step != "..":
            steps.append(step)
        elif steps and steps[-1] != "..":
            steps.pop()
        elif not root:
            steps.append(step)
    return root + "/".join(steps) or "."


def _root_of(path: str) -> str:
    """The slashes that a path keeps at its start: POSIX leaves open what exactly two of them mean."""
    slashes = len(path) - len(path.lstrip("/"))
    if slashes == 2:
        return "//"
    return path[: min(slashes, 1)]


def read_arguments(arguments_text: str) -> dict[str, Any]:
    """The arguments that matter, by plain name: `file_path` and `filePath` are both `filepath`.

    Arguments that are not a JSON object give an empty dict.
    """
    decoded = decode_json(arguments_text, deepest=DEEPEST_ARGUMENTS)
    if not isinstance(decoded, dict):
        return {}
    arguments: dict[str, Any] = {}
    for name, value in decoded.items():
        plain_name = lower_ascii(_DASHES.sub("", name))
        if value is not None and plain_name not in _SIDE_ARGUMENTS:
            arguments[plain_name] = value
    return arguments


def pick_argument(arguments: Mapping[str, Any], *names: str) -> Any:
    """The first of these arguments that is there, or None.

    Tools name the same argument differently, so each caller lists the names that it knows.
    """
    for name in names:
        if name in arguments:
            return arguments[name]
    return None


def read_path(arguments: Mapping[str, Any], folder: str = "") -> str | None:
    """The only path among the arguments; None if there is none, or more than one.

    `{"paths": ["a.py"]}` has one path as well.
    """
    values = [value for name, value in arguments.items() if name in PATH_ARGUMENTS]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if len(values) != 1:
        return None
    path = values[0]
    if not isinstance(path, str):
        return None
    return normalise_path(path, folder)


def normalise_path(path: str, folder: str) -> str | None:
    r"""A path in its shortest spelling; None if the text cannot be a path. Nothing is looked up.

    `file:///src//a.py` is `/src/a.py`, and `src\a.py` is `src/a.py`. An address such as `https://x.org/a`
    stays.
    """
    path = path.removeprefix("file://")
    if is_blank(path) or "\n" in path:
        return None
    if "://" in path:
        return path
    return shortest_path(posixpath.join(folder, path.replace("\\", "/")))


class LineRange(NamedTuple):
    """The first and the last line of a read; None where it has no limit."""

    first: int | None
    last: int | None


def read_line_range(arguments: Mapping[str, Any]) -> LineRange | None:
    """The lines that a read asks for; None if its arguments make no sense.

    `view_range=[5, -1]` is everything from line 5 on, `offset=5, limit=10` are the lines 5 to 14.
    """
    try:
        first, last = map(_to_integer, _pick_range_ends(arguments))
        limit = _to_integer(arguments.get("limit"))
    except ValueError:
        return None
    if first in {0, 1}:
        first = None
    first_line = first or 1
    if limit is not None:
        last = first_line + limit - 1
    elif last == -1:
        last = None
    if last is None:
        return LineRange(first, None)
    if not 0 < first_line <= last:
        return None
    return LineRange(first, last)


def _pick_range_ends(arguments: Mapping[str, Any]) -> list[Any]:
    """The two ends of a range: from one argument such as `view_range`, else from one argument for each.

    The list is empty if that one argument is not a list.
    """
    both_ends = pick_argument(arguments, *_RANGE_ARGUMENTS)
    if not both_ends:
        first = pick_argument(arguments, *_FIRST_LINE_ARGUMENTS)
        last = pick_argument(arguments, *_LAST_LINE_ARGUMENTS)
        return [first, last]
    if isinstance(both_ends, list):
        return both_ends
    return []


def _to_integer(value: Any) -> int | None:
    """The number of a line, which some models write as text or as `12.0`; None stays None.

    Raises ValueError for anything else.
    """
    if value is None:
        return None
    if not _INTEGER.fullmatch(str(value)):
        raise ValueError(value)
    return int(float(value))
