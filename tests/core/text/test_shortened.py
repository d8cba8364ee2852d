"""What a shortened text shows first: definitions before docstrings, and rules that it would not show."""

from __future__ import annotations

from lamina.core.text.outline import outline_code
from lamina.core.text.user_words import add_rules

NAMES = ("load", "save", "send", "read", "close")
METHODS = [f"    def {name}(self) -> None:\n        run_it_now('{name}', 1)\n" for name in NAMES]
CODE = "\n".join(['"""What the file is for, in one line."""', "", "class Box:", *METHODS])


def test_definitions_are_shown_before_docstrings() -> None:
    """The docstring of a file is its first line, and no definition has less indent."""
    docstring_alone_is_missing = False
    for limit in range(150, 300, 5):
        shown = outline_code(CODE, limit=limit)
        is_complete = all(f"def {name}(" in shown for name in NAMES)
        if '"""' in shown:
            assert is_complete, limit
        elif is_complete:
            docstring_alone_is_missing = True
    assert docstring_alone_is_missing


def test_docstrings_are_no_definitions() -> None:
    """Of a file with one function, head and tail say more than an outline."""
    text = '"""What it does."""\n\ndef load() -> None:\n    """Load it."""\n' + "    run(1)\n" * 60
    assert "run(1)" in outline_code(text, limit=200)


RULE = "Always answer in French."
OTHER = "Never touch the folder legacy."
TEXT = f"Please look at this. {RULE} It is a long story. {OTHER} That is all."


def test_rules_that_a_shortened_message_does_not_show_are_added() -> None:
    assert add_rules("Please look …", TEXT, 400) == f"Please look …\n{RULE}\n{OTHER}"


def test_rules_that_it_shows_are_not_said_again() -> None:
    assert add_rules(f"Please … {RULE}", TEXT, 400) == f"Please … {RULE}\n{OTHER}"
    assert add_rules(TEXT, TEXT, 400) == TEXT


def test_rules_take_at_most_half_and_each_counts_with_its_line_end() -> None:
    both = len(RULE) + 1 + len(OTHER) + 1
    assert add_rules("Please", TEXT, 2 * both) == f"Please\n{RULE}\n{OTHER}"
    assert add_rules("Please", TEXT, 2 * both - 2) == f"Please\n{RULE}"
    assert add_rules("Please", TEXT, 2 * (len(RULE) + 1)) == f"Please\n{RULE}"
    assert add_rules("Please", TEXT, 2 * len(RULE)) == "Please"
