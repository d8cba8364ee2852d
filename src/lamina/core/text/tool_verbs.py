"""What a tool does, judged by the words of its name: it writes, lists, searches, or answers a question.

`get_order` is a question and `order_meal` is an action: the first word with a known meaning decides. A few
words, such as `replace` in `search_and_replace`, mean a change wherever they appear.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lamina.core.text.characters import lower_ascii, word_set

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
