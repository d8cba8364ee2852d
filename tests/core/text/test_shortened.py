"""What is added to a shortened message: the rules that it would not show."""

from __future__ import annotations

from lamina.core.text.user_words import add_rules

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
