"""Files, folders, packing, damage, and how much of it is held."""

from __future__ import annotations

import gzip
import importlib
import io
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.costs import Trace, UnreadableLine, read_traces
from lamina.costs import logs as traces
from lamina.costs.logs import lines
from lamina.costs.logs.growing_requests import OPEN, GrowingConversations
from lamina.costs.logs.requests import read_call
from lamina.errors import BadInput
from tests.costs import recorded
from tests.costs.recorded import dumped, found, session, the_trace, written
from tests.examples import up_to

GOOD = dumped(session(id="good"))


def good(path: Path) -> list[str]:
    return [trace.id for trace in found(path)[0]]


def reasons(path: Path) -> list[str]:
    return [f"{each.place.rpartition('/')[2]}: {each.reason}" for each in found(path)[1]]


# which files


def test_folders_are_read_to_their_depths_in_one_order(tmp_path: Path) -> None:
    for name in ("b/z.jsonl", "b/a/y.json", "a/x.jsonl", "a.ndjson", "b/not.txt", "c.jsonl.gz"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = dumped(session(id=name))
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert good(tmp_path) == ["a.ndjson", "c.jsonl.gz", "a/x.jsonl", "b/z.jsonl", "b/a/y.json"]
    assert good(tmp_path / "b" / "*.jsonl") == ["b/z.jsonl"]
    assert good(tmp_path / "**" / "y.json") == ["b/a/y.json"]
    assert good(tmp_path / "b" / "not.txt") == ["b/not.txt"]


def test_a_file_that_is_meant_twice_is_read_once(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [session()])
    (tmp_path / "b.jsonl").symlink_to(path)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert len(list(read_traces([path, str(path), tmp_path]))) == 1


def test_a_name_with_signs_of_a_pattern_is_a_name_where_it_exists(tmp_path: Path) -> None:
    assert good(written(tmp_path / "a[1].jsonl", [session()])) == ["s1"]


@pytest.mark.parametrize("name", ["absent.jsonl", "*.absent"])
def test_a_path_that_is_not_there_is_an_error_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"no such file|nothing matches"):
        read_traces(tmp_path / name)


def test_a_file_that_went_away_or_may_not_be_read_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [session()])
    reading = read_traces([path, written(tmp_path / "b.jsonl", [session()])])
    path.unlink()
    first, second = reading
    assert isinstance(first, UnreadableLine)
    assert "No such file" in first.reason
    assert isinstance(second, Trace)


def test_a_pipe_that_is_named_is_read() -> None:
    reader, writer = os.pipe()
    os.write(writer, GOOD)
    os.close(writer)
    assert good(Path(f"/dev/fd/{reader}")) == ["good"]
    os.close(reader)


# packing


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def wide(data: bytes) -> bytes:
    """Packed with the largest window that is allowed."""
    options = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    out = io.BytesIO()
    with zstandard.ZstdCompressor(compression_params=options).stream_writer(out, closefd=False) as writer:
        writer.write(data)
    return out.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, zst, wide])
def test_what_a_file_is_packed_with_is_told_by_its_bytes(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(pack(GOOD + b"\n") + pack(dumped(session(id="next"))))
    assert good(path) == ["good", "next"]


def test_without_anything_that_unpacks_zstd_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(zst(GOOD))
    written(tmp_path / "b.jsonl", [GOOD])

    def refuse(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    assert reasons(tmp_path) == [
        "a.jsonl.zst: it is packed with zstd, which nothing here unpacks: install lamina-context[cost]"
    ]
    assert good(tmp_path) == ["good"]


@pytest.mark.parametrize("pack", [gzip.compress, zst])
def test_of_a_file_that_was_cut_off_what_is_there_is_read(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "a.jsonl.packed"
    noise = os.urandom(200_000).hex().encode()
    path.write_bytes(pack(GOOD + b"\n" + noise + b"\n")[:-50_000])
    assert good(path) == ["good"]
    assert "cannot be read on" in reasons(path)[-1]


def test_bytes_after_the_end_or_in_the_middle_are_reported(tmp_path: Path) -> None:
    broken = bytearray(zst(os.urandom(50_000)))
    broken[9:40] = b"x" * 31
    (tmp_path / "a.jsonl").write_bytes(zst(GOOD + b"\n") + bytes(broken))
    (tmp_path / "b.jsonl").write_bytes(gzip.compress(GOOD + b"\n") + b"\x1f\x8bgarbage")
    assert good(tmp_path) == ["good", "good"]
    assert len(reasons(tmp_path)) == 2


# damage


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"messages": [', "not JSON"),
        (b'{"messages": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"17", "a number, not an object"),
        (b'{"colour": "teal"}', "no record of a conversation"),
        (b'{"messages": {}}', "messages is an object"),
        (b'{"messages": []}', "messages is an empty list"),
        (b'{"messages": [{"role": "user", "content": "a"}, 7]}', r"messages\[1\] is a number"),
        (b'{"messages": [{"content": "a"}]}', r"messages\[0\] has no role"),
        (b'{"messages": [{"role": "user", "content": 7}]}', r"messages\[0\].content is a number"),
        (b'{"messages": [{"role": "user", "content": "a"}], "tools": "x"}', "tools is text"),
        (b'{"custom_id": "x", "response": {"choices": []}}', "an answer, and no request"),
        (b'{"v": 2, "segment": {}}', "version 2"),
        (b'{"v": 1, "segment": {"role": "nobody"}}', "Invalid enum value"),
    ],
)
def test_a_damaged_line_is_reported_with_its_place_and_the_rest_is_read(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    path = written(tmp_path / "a.jsonl", [GOOD, line, b"", GOOD])
    assert good(path) == ["good", "good"]
    [said] = reasons(path)
    assert said.startswith("a.jsonl:2: ")
    with pytest.raises(ValueError, match=reason):
        raise ValueError(said)


def test_a_line_that_is_too_long_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(GOOD + b'\n{"messages": "')
        for _ in range(30):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n' + GOOD)
    monkeypatch.setattr(lines, "LONGEST", 1 << 20)
    peak = measured(path)
    assert good(path) == ["good", "good"]
    assert reasons(path)[0].startswith("a.jsonl.gz:2: it is longer than")
    assert peak < 12 << 20


def test_half_a_surrogate_pair_and_nan_do_not_cost_the_line(tmp_path: Path) -> None:
    row = b'{"messages": [{"role": "user", "content": "cut \\ud83d"}], "temperature": NaN}'
    trace = the_trace(written(tmp_path / "a.jsonl", [row]))
    assert trace.items[0]["content"] == "cut ?"


def test_a_mark_of_the_byte_order_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n\r\n" + GOOD + b"\r\n")
    assert good(path) == ["good", "good"]
    assert reasons(path) == []


def test_of_much_damage_only_the_beginning_is_told_one_by_one(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [*[b"{"] * 50, GOOD])
    said = reasons(path)
    assert good(path) == ["good"]
    assert len(said) == traces.MOST_REPORTED + 1
    assert said[-1] == "a.jsonl: 30 more records of it cannot be read"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
SHAPES = [
    [session()], recorded.chat_log(2), recorded.claude_log(2), recorded.responses_log(chained=True),
    recorded.claude_code(), recorded.codex(), [{"v": 1, "segment": {"role": "user", "kind": "user",
    "parts": [{"type": "text", "text": "a"}]}}],
]  # fmt: skip


@settings(max_examples=up_to(150), deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 6))
def test_whatever_the_bytes_the_other_lines_come_through(
    tmp_path_factory: pytest.TempPathFactory, junk: list[bytes], at: int
) -> None:
    path = tmp_path_factory.mktemp("a") / "a.jsonl"
    junk.insert(min(at, len(junk)), b"\n" + GOOD + b"\n")
    path.write_bytes(b"\n" + b"".join(junk))  # first a line end: else the junk may say that it is packed
    assert good(path) == ["good"]


def inside(value: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*way, step)
        yield from inside(inner, (*way, step))


PLACES = [(shape, at, way) for shape in range(len(SHAPES)) for at, row in enumerate(SHAPES[shape])
          for way in inside(row, ())]  # fmt: skip


@settings(max_examples=up_to(200), deadline=None)
@given(st.sampled_from(PLACES), JSON)
def test_whatever_stands_in_a_field_nothing_is_raised(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[int, int, tuple[Any, ...]], value: Any
) -> None:
    shape, at, (*way, last) = place
    rows: Any = lines.decode_json(dumped(SHAPES[shape]))
    holder = rows[at]
    for step in way:
        holder = holder[step]
    holder[last] = value
    assert "good" in good(written(tmp_path_factory.mktemp("a") / "a.jsonl", [*rows, GOOD]))


# how much is held


def measured(path: Path) -> int:
    """Bytes that reading held at its peak."""
    tracemalloc.start()
    try:
        for _ in read_traces(path):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_reading_holds_a_few_sessions_and_not_the_file(tmp_path: Path) -> None:
    row = dumped(session(id="s", note="x" * 100_000)) + b"\n"
    with (tmp_path / "a.jsonl").open("wb") as file:
        for _ in range(600):
            file.write(row)
    assert (tmp_path / "a.jsonl").stat().st_size > 50 << 20
    assert measured(tmp_path) < 8 << 20


def test_a_log_of_many_conversations_holds_only_a_few(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        for n in range(60):
            file.writelines(dumped(row) + b"\n" for row in recorded.chat_log(4, ask=f"{n} " + "x" * 20_000))
    assert (tmp_path / "a.jsonl").stat().st_size > 15 << 20
    assert measured(tmp_path) < 6 << 20


def test_no_more_conversations_are_held_than_it_says() -> None:
    growing = GrowingConversations()
    for n in range(20):
        list(growing.take(read_call(lines.TraceRow("a:1", recorded.chat_log(0, ask=f"{n}")[0], b""))))
    assert len(growing.open) == OPEN
