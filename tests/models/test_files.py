from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadInput
from lamina.models.counters import from_file

WORDS = "the quick brown fox jumps over lazy dogs path lines ok true note null".split()


def byte_level() -> list[str]:
    """The 256 letters that byte-level files write bytes with."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 256 + 256 - len(kept)))
    return [chr(byte) if byte in kept else chr(next(moved)) for byte in range(256)]


def tokenizer(**changes: Any) -> dict[str, Any]:
    """A small byte-level tokenizer of a few English words, each merged from its letters."""
    letters = byte_level()
    vocabulary, merges = list(letters), []
    for word in (f"{letters[32]}{word}" for word in WORDS):
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary.append(word[:end])
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    specials = ("<|end|>", "<think>")
    added = [
        {"id": len(vocabulary) + at, "content": content, "special": at == 0, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for at, content in enumerate(specials)
    ]  # fmt: skip
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "vocab": {token: at for at, token in enumerate(vocabulary)}, "merges": merges,
    }  # fmt: skip
    ends = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|end|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [len(vocabulary)], "tokens": ["<|end|>"]}},
    }
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": split, "post_processor": ends, "decoder": split, "model": model,
    } | changes  # fmt: skip


def written(folder: Path, content: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture(params=["both", "tokenizers only", "splintr only"])
def readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    missing = {"tokenizers only": "splintr", "splintr only": "tokenizers"}.get(request.param)
    if missing != "tokenizers":
        pytest.importorskip("tokenizers")
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    return str(request.param)


def test_a_file_counts_as_it_says(tmp_path: Path, readers: str) -> None:
    counter = from_file(written(tmp_path, tokenizer()))
    assert [counter.count(text) for text in ("", " fox", " foxes", "fox jumps", "é", "\ud800")] == [
        0,
        1,
        3,
        4,
        2,
        3,
    ]
    assert counter.basis == ("estimated" if readers == "splintr only" else "exact")
    assert counter.name == f"file:{tmp_path.name}/tokenizer.json"


def test_special_tokens_are_neither_added_nor_matched(tmp_path: Path, readers: str) -> None:
    count = from_file(written(tmp_path, tokenizer())).count
    assert count("<|end|>") == len("<|end|>")
    assert count("<think> fox") == len("<think>") + 1
    assert readers


def test_a_million_spaces_are_counted(tmp_path: Path) -> None:
    assert from_file(written(tmp_path, tokenizer())).count(" " * 1_000_000) > 1000


def test_a_vocabulary_of_which_only_bytes_are_used_is_refused(tmp_path: Path) -> None:
    broken = tokenizer()
    broken["model"]["merges"] = []
    broken["model"]["vocab"] |= {f"unused{at}": 1000 + at for at in range(1000)}
    with pytest.raises(BadInput, match="tokens of"):
        from_file(written(tmp_path, broken))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[]", "no vocabulary"),
        ('{"model": 1}', "no vocabulary"),
        ("{", "not JSON"),
        ('{"model":{"vocab":{}}}', "0 tokens"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=problem):
        from_file(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.json"):
        from_file(tmp_path / "none.json")
