from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.replay.findings import find_in_session
from lamina.replay.model_calls import read_conversation
from lamina.replay.values import SessionFindings, Trace
from tests.replay.talks import Json, result, says, system, trace, user


def count_words(message: Json) -> int:
    return len(str(message["content"]).split())


def find(recorded: Trace, *, under_lamina: bool = False) -> SessionFindings:
    conversation = read_conversation(recorded)
    return find_in_session(
        conversation, count_words, lambda text: len(text.split()), under_lamina=under_lamina
    )


def reading(path: str, words: int, **arguments: Any) -> list[Json]:
    """A call of `read` and its result. Calls of one session have ids of their own by what they are about."""
    return [says(None, path=path, **arguments), result("word " * words, path=path, **arguments)]


def writing(path: str) -> list[Json]:
    call = says(None, path=path, content="x")
    call["tool_calls"][0]["function"]["name"] = "write_file"
    return [call, result("done", path=path, content="x")]


def test_a_large_result_is_counted_in_every_call_that_sent_it() -> None:
    recorded = trace(user("Go."), *reading("a.py", 3_000), *reading("b.py", 10), says("Done."))
    findings = find(recorded)
    [large] = findings.results
    assert (large.name, large.tool, large.tokens, large.call, large.carried) == (
        "a.py",
        "read",
        3_000,
        2,
        6_000,
    )
    [once] = find(recorded, under_lamina=True).results
    assert once.carried == 3_000


def test_after_a_compaction_a_result_is_sent_no_more() -> None:
    messages = [
        user("Go."),
        *reading("a.py", 3_000),
        says("Half."),
        user("Summary."),
        says("More."),
        says("x"),
    ]
    recorded = Trace(id="t", place="t:1", dialect="openai_chat", items=messages, compacted=(4,))
    [large] = find(recorded).results
    assert large.carried == 3_000


def test_what_was_read_again_counts_only_if_nothing_is_new_in_it() -> None:
    recorded = trace(
        user("Go."),
        *reading("src/app.py", 10),
        *reading("src/app.py", 10),
        *writing("src/app.py"),
        *reading("src/app.py", 10),
        *reading("src/other.py", 10, offset=1, limit=5),
        *reading("src/other.py", 10, offset=6, limit=5),
        says("Done."),
    )
    reads = {read.name: read for read in find(recorded).reads}
    assert (reads["src/app.py"].times, reads["src/app.py"].tokens) == (3, 30)
    assert (reads["src/app.py"].call, reads["src/app.py"].last_call) == (2, 5)
    # The second read is in the calls from 3 on, of which there are 7 in all; the third came after a write.
    assert reads["src/app.py"].carried_again == 10 * 5 + 0
    assert reads["src/other.py"].times == 2
    assert reads["src/other.py"].carried_again == 0, "the second read has other lines"


def test_tools_that_were_never_called_are_told_with_what_they_took() -> None:
    def tool(name: str) -> Json:
        return {"type": "function", "function": {"name": name, "description": "one two three"}}

    recorded = Trace(
        id="t",
        place="t:1",
        dialect="openai_chat",
        items=[user("Go."), *reading("a.py", 3), says("Done.")],
        head={"tools": [tool("read"), tool("browse")]},
    )
    [unused] = find(recorded).tools
    assert unused.name == "browse"
    assert unused.carried == 2 * unused.tokens > 0


@given(st.lists(st.tuples(st.sampled_from(["a.py", "b.py"]), st.integers(1, 4_000)), max_size=12))
def test_what_is_carried_is_never_more_than_what_was_sent(steps: list[tuple[str, int]]) -> None:
    messages = [system("Be brief."), user("Go.")]
    for number, (path, words) in enumerate(steps):
        messages += reading(path, words, number=number)
    recorded = trace(*messages, says("Done."))
    calls = read_conversation(recorded).calls
    sent = sum(sum(map(count_words, recorded.items[: call.end])) for call in calls)
    findings = find(recorded)
    assert sum(large.carried for large in findings.results) <= sent
    assert sum(read.carried_again for read in findings.reads) <= sent
    for read in findings.reads:
        assert read.times == sum(path == read.name for path, _ in steps)
        assert read.tokens == sum(words for path, words in steps if path == read.name)
