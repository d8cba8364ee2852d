from __future__ import annotations

import io
import wave
import zlib
from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core import tokens as counting
from lamina.core.tokens import count_media_tokens, count_pdf_pages, decode_base64

PAGE = 3000


def tokens(raw: bytes, media_type: str) -> int:
    return count_media_tokens(b64encode(raw).decode(), media_type, page=PAGE, count=len)


def pdf(pages: int, *, packed: bool = False, filler: int = 0) -> bytes:
    """A PDF as far as a scan for pages reads it."""
    objects = b"".join(b"<< /Type /Page /Parent 1 0 R >>\n" for _ in range(pages))
    tree = b"1 0 obj << /Type /Pages /Count %d >> endobj\n" % pages
    if packed:
        stream = zlib.compress(b"2 0 3 40 " + objects)
        objects = b"9 0 obj << /Type /ObjStm /N %d /Length %d >>\nstream\r\n%b\nendstream\n" % (
            pages,
            len(stream),
            stream,
        )
    return b"%PDF-1.7\n" + tree + objects + b"x" * filler + b"\n%%EOF"


def wav(seconds: int, *, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(rate)
        written.writeframes(bytes(2 * rate * seconds))
    return file.getvalue()


def mp4(seconds: int, *, long: bool = False, filler: int = 0) -> bytes:
    """The boxes of an MP4 file that say how long it is."""
    times = b"\x00" * (16 if long else 8)
    length = (seconds * 600).to_bytes(8 if long else 4, "big")
    header = (
        b"mvhd" + (b"\x01" if long else b"\x00") + b"\x00" * 3 + times + (600).to_bytes(4, "big") + length
    )
    return b"\x00\x00\x00\x18ftypisom" + b"\x00" * 12 + header + b"\x01" * filler


@pytest.mark.parametrize("packed", [False, True], ids=["in the open", "packed"])
@pytest.mark.parametrize("pages", [1, 2, 90])
def test_a_pdf_costs_its_pages(pages: int, *, packed: bool) -> None:
    raw = pdf(pages, packed=packed)
    assert count_pdf_pages(raw) == pages
    assert tokens(raw, "application/pdf") == pages * PAGE


def test_a_pdf_is_known_by_its_first_bytes_too() -> None:
    assert tokens(pdf(4), "application/octet-stream") == tokens(pdf(4), "") == 4 * PAGE


def test_names_that_only_begin_like_a_page_are_none() -> None:
    raw = b"%PDF-1.4 /Type /Pages /Type/PageLabel /Type /Page2 /Type\n/Page>> /Type/Page/X"
    assert count_pdf_pages(raw) == 2


def test_a_pdf_that_says_its_pages_only_at_the_front_is_believed() -> None:
    raw = b"%PDF-1.5\n1 0 obj << /Linearized 1 /L 90000 /N 12 /T 5 >>\n" + bytes(3000)
    assert count_pdf_pages(raw) == 12


def test_without_any_sign_of_pages_the_size_has_to_do() -> None:
    assert count_pdf_pages(b"%PDF-1.7 " + bytes(counting.PAGE_BYTES * 3)) == 4
    assert count_pdf_pages(b"") == 1


def test_a_large_pdf_of_few_pages_costs_something_for_its_size() -> None:
    assert tokens(pdf(1, filler=2_000_000), "application/pdf") == pytest.approx(10_000, rel=0.01)


def test_a_bomb_is_not_unpacked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "UNPACKED_STREAM", 1000)
    monkeypatch.setattr(counting, "UNPACKED", 3000)
    stream = zlib.compress(b"<< /Type /Page >>" * 100_000)
    one = b"<< /Type /ObjStm >> stream\n" + stream + b"endstream\n"
    assert 100 < count_pdf_pages(b"%PDF-1.7 " + one * 9) < 300


@pytest.mark.parametrize("damage", [b"\x00garbage", b""])
def test_packed_objects_that_cannot_be_unpacked_are_passed_over(damage: bytes) -> None:
    raw = b"%PDF-1.7 << /Type /ObjStm >> stream\n" + damage + b"endstream /ObjStm stream"
    assert count_pdf_pages(raw) == 1


def test_sound_costs_its_seconds_where_they_are_known() -> None:
    assert tokens(wav(60), "audio/wav") == 61 * counting.SOUND  # the header makes it a little longer
    assert tokens(wav(60, rate=48_000), "audio/x-wav") == 61 * counting.SOUND
    assert tokens(bytes(250_000), "audio/mpeg") == 1000


@pytest.mark.parametrize("long", [False, True])
def test_a_film_costs_its_seconds_where_they_are_known(*, long: bool) -> None:
    assert tokens(mp4(10, long=long), "video/mp4") == 10 * counting.FILM
    assert tokens(mp4(10, long=long), "audio/mp4") == 10 * counting.SOUND
    assert tokens(mp4(10, filler=50_000_000), "video/mp4") == pytest.approx(10_000, rel=0.01)
    assert tokens(bytes(250_000), "video/webm") == 1000


@pytest.mark.parametrize(
    "sort", ["text/plain", "text/csv; charset=utf-8", "application/json", "image/svg+xml"]
)
def test_text_is_counted_as_text(sort: str) -> None:
    assert tokens("zählt".encode() * 50, sort) == 250


def test_anything_else_costs_its_bytes_as_if_it_were_text() -> None:
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert tokens(bytes(165_000), word) == 41_250
    assert tokens(b"", word) == PAGE


@given(st.binary())
def test_base64_comes_back_in_either_alphabet_with_or_without_its_end(raw: bytes) -> None:
    for written in (b64encode(raw).decode(), urlsafe_b64encode(raw).decode()):
        assert decode_base64(written) == decode_base64(written.rstrip("=")) == raw
        assert decode_base64("\n".join(written)) == raw


@given(st.binary(min_size=1), st.integers(2, 5))
def test_base64_that_stands_there_several_times_is_read_as_often(raw: bytes, times: int) -> None:
    whole = b64encode(raw).decode()
    if whole.endswith("="):
        assert decode_base64(whole * times) == raw * times


@given(st.text(), st.sampled_from(["application/pdf", "audio/wav", "video/mp4", "text/plain", "x/y", ""]))
def test_no_data_breaks_the_estimate(data: str, sort: str) -> None:
    assert count_media_tokens(data, sort, page=PAGE, count=len) >= 0
