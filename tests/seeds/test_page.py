"""The pages about the source systems, the tests and the library speak of the same things."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
NOTES = TESTS.parent / "notes"
CASES = (NOTES / "seeds.md").read_text("utf-8")
CAPABILITIES = re.findall(
    r"^\| (\d+|[A-M]) \| ([^|]+) \|", (NOTES / "capabilities.md").read_text("utf-8"), re.MULTILINE
)

TRIED_BY = """
1 seeds/test_000_lifecycle test_phase_1_hydration_loads_persona_history_and_attachments_by_priority
2 seeds/test_000_attachments test_s0_02_the_least_important_goes_first
3 sessions/test_history_window test_the_last_messages_are_sent_and_the_rest_is_recalled
4 sessions/test_session test_persona_sections_stand_in_order_from_code_file_and_store
5 sessions/test_relevance test_stable_judges_by_the_prompt_that_stands_when_a_cut_is_due
6 sessions/test_session test_what_belongs_to_another_workspace_is_left_out_and_reported
7 context/test_tools test_files_are_written_edited_moved_and_removed
8 seeds/test_000_lifecycle test_phase_3_the_answer_streams_and_context_stands_before_the_question
9 seeds/test_001_layers test_s1_12_layers_can_be_told_apart_and_have_hashes
10 seeds/test_001_layers test_s1_35_the_newest_content_in_the_first_place_and_nothing_leaves
11 core/test_library test_turn_2_has_the_earlier_note_compacted_in_the_library_and_refers_to_it
12 core/test_library test_the_library_shortens_by_kind_where_that_is_asked_for
13 summaries/test_turn_attachments test_a_turn_that_brings_too_much_is_summarised_and_kept_in_full
14 seeds/test_001_history test_s1_43_context_stands_before_the_question_and_the_question_once
15 agent/test_agent_settings test_one_shot_tools_run_before_the_question_and_the_model_answers_once
16 sessions/test_parity test_a_session_reloaded_at_any_turn_builds_the_same_bytes
17 formats/test_markdown test_the_context_of_a_page_is_read_below_a_folder_and_sent_with_its_messages
18 seeds/test_001_context test_what_could_not_be_parsed_is_counted_by_tag_and_place
19 sessions/test_reports test_another_model_tool_or_dialect_after_a_restart_is_reported_as_such
20 test_gemini_cache test_a_cache_is_made_once_and_used_by_every_request
21 formats/test_codec test_a_log_comes_back_as_it_was
22 seeds/test_001_layers test_any_run_of_attachments_keeps_the_invariants_of_the_layers
29 seeds/test_003_store test_s3_06_roles_are_names_in_any_case_or_numbers
30 seeds/test_003_store test_s3_03_both_in_one_folder
31 context/test_gather test_the_order_of_the_sources_is_kept_whoever_is_first
32 context/test_gather test_a_session_tells_the_model_one_time_and_moves_no_prefix_for_it
33 sessions/test_session test_the_turn_is_kept_before_the_model_is_called_and_the_answer_after
34 stores/test_files_layout test_the_end_is_read_without_the_rest
38 agent/test_loop test_hooks_see_each_request_and_each_answer
A sessions/test_history_window test_the_window_is_kept_with_the_conversation_until_it_is_said_otherwise
B core/test_library test_what_was_found_for_one_question_never_enters_the_library
C formats/test_markdown test_a_chat_of_that_system_is_rebuilt_and_links_only_if_asked
D core/test_library test_words_of_a_kind_are_asked_by_the_library
E sessions/test_reports test_library_and_compaction_are_phases_of_their_own
F agent/test_opening test_the_persona_of_a_chat_stands_when_it_is_opened_again
G sessions/test_system_text test_a_function_is_asked_at_each_turn_and_the_prefix_stays
H sessions/test_sealed_address test_the_settings_name_the_file_of_the_key
I core/test_library test_what_a_tool_loop_fetched_leaves_with_its_turn
J sessions/test_reports test_one_hash_covers_system_text_and_library
K agent/test_registry test_an_agent_of_a_file_has_its_persona_tools_model_and_limits
L sessions/test_attach test_a_folder_and_a_tag_are_attached_to_one_message
M cli/test_conversations test_a_damaged_record_is_found_and_the_rest_is_rescued
"""
"""A test for each capability. Rows 23 to 28 and 35 to 37 are made of cases, whose tests have their ids."""


def test_every_case_with_a_verdict_has_a_test_and_every_test_a_case() -> None:
    rows = re.findall(r"^\| (S\d-\d\d) \|[^|]+\| (satisfied|overridden|not here) \|", CASES, re.MULTILINE)
    judged = {case.lower() for case, verdict in rows if verdict != "not here"}
    tests = "\n".join(path.read_text("utf-8") for path in HERE.glob("test_0*.py"))
    named = re.findall(r"\b(?:test_)?(s\d)_(\d\d)(?:_(\d\d)_)?", tests)
    assert judged == {f"{system}-{n}" for system, *numbers in named for n in numbers if n}
    assert len(rows) == len(dict(rows))


def test_every_capability_has_a_test() -> None:
    tried = {row: (file, test) for row, file, test in map(str.split, TRIED_BY.strip().split("\n"))}
    in_cases = {str(number) for number in (*range(23, 29), *range(35, 38))}
    assert {number for number, _ in CAPABILITIES} == {*tried, *in_cases}
    for row, (file, test) in tried.items():
        assert f"def {test}(" in (TESTS / f"{file}.py").read_text("utf-8"), row


def test_every_capability_names_the_heading_of_its_document() -> None:
    """A row of its own table belongs to the document above it; a finer one names the document too."""
    for number, capability in CAPABILITIES:
        heading = re.search(r"\(\*(.+)\*\)$", capability)
        assert heading is not None, number
        assert number.isdigit() or re.match(r"00[0-4], ", heading[1]), number


@pytest.mark.parametrize(
    "page", ["capabilities.md", *(path.name for path in sorted(NOTES.glob("from-*.md")))]
)
def test_what_the_page_names_is_there(page: str) -> None:
    names = set(re.findall(r"`(lamina(?:\.\w+)+)", (NOTES / page).read_text("utf-8")))
    missing = [name for name in sorted(names) if not exists(name)]
    assert missing == []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return hasattr(importlib.import_module(module), attribute)
    return True
