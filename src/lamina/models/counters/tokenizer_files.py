"""A counter from a tokenizer's own file: Hugging Face's `tokenizer.json`, read by splintr or tokenizers.

Special tokens of the file are never matched in text, nor are tokens that it puts around a text counted.
The counter says `exact` only where the file's reference implementation, the package `tokenizers`, is
installed and agrees on known texts; where it disagrees, it counts. It does not know which model a file
belongs to, and downloads nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from lamina.core.tokens import Counter
from lamina.errors import BadInput
from lamina.models.counters.guarded import guarded, without_surrogates

Encode = Callable[[str], list[int]]

PROBES = (
    "Zählt: 世界 🌍 f(x)=x**2  # don't\n",
    "The quick brown fox\n\n\n    jumps   over 13 lazy dogs.\t1234567890\r\n",
    '{"path": "src/a.py", "lines": [1, 22, 333], "ok": true, "note": null}',
    "नमस्ते Привет שלום 한국어 e\u0301 \u00a0\u3000",
    "=" * 40 + " " * 40 + "a" * 40 + "<p><code>x</code>\n" + "\n" * 40,
)
"""Texts on which two readings of one file must agree."""


def from_file(path: str | Path, *, family: str = "o200k") -> Counter:
    """A counter from a `tokenizer.json`; `family` is the estimate for a text at which it fails."""
    data = _read(Path(path))
    encode, exact = _chosen(data, str(path))
    name = f"file:{Path(path).parent.name}/{Path(path).name}".replace("file:/", "file:")
    return Counter(name=name, count=guarded(_Counting(encode), family), exact=exact)


class _Counting:
    """The length of what an encoder gives, less what it gives for nothing."""

    def __init__(self, encode: Encode) -> None:
        self._encode, self._around = encode, len(encode(""))

    def __call__(self, text: str) -> int:
        try:
            ids = self._encode(text)
        except (UnicodeEncodeError, TypeError):
            ids = self._encode(without_surrogates(text))
        return max(0, len(ids) - self._around)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {str(path)!r}: {error.strerror}", place="from_file") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(path, f"is not JSON ({error})") from None
    match data:
        case {"model": {"vocab": dict() | list()}}:
            return dict(data)
    raise _refused(path, "has no vocabulary")


def _chosen(data: dict[str, Any], path: str) -> tuple[Encode, bool]:
    """The encoder, and whether it is known to be the file's own."""
    plain = msgspec.json.encode(_without_specials(data))
    quick, reference = _by_splintr(plain), _by_tokenizers(plain)
    if quick is None and reference is None:
        raise _refused(path, "cannot be read by splintr", hint="install the package tokenizers")
    agree = quick is not None and reference is not None and all(quick(it) == reference(it) for it in PROBES)
    encode = quick if agree or reference is None else reference
    assert encode is not None  # noqa: S101 - one of the two is there
    _prove(encode, data, path)
    return encode, reference is not None


def _without_specials(data: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer with no token that means more than its text, and none put around a text."""
    added = [token for token in data.get("added_tokens") or () if not _means_more(token)]
    return {**data, "added_tokens": added, "post_processor": None}


def _means_more(token: Any) -> bool:
    """Marked special, or spelled like one: some files leave the mark out for `<think>` and the like."""
    match token:
        case {"content": str() as content}:
            spelled = content.startswith(("<", "[")) and content.strip("</>") not in _TAGS
            return bool(token.get("special")) or spelled
    return True


_TAGS = frozenset(
    "table caption thead tbody tfoot tr th td h1 h2 h3 h4 h5 h6 blockquote strong em b i u s sub sup "
    "code".split()
)
"""Tags that Gemma's vocabularies hold as ordinary tokens."""


def _by_splintr(plain: bytes) -> Encode | None:
    try:
        from splintr import from_json_bytes  # noqa: PLC0415 - who counts otherwise does not pay for it

        encode: Encode = from_json_bytes(plain).encode_ordinary
    except (ImportError, ValueError):
        return None
    return encode


def _by_tokenizers(plain: bytes) -> Encode | None:
    try:
        read = import_module("tokenizers").Tokenizer.from_str(plain.decode())
    except Exception:  # noqa: BLE001 - it is not there, or raises nothing narrower
        return None
    read.no_truncation()
    read.no_padding()
    return lambda text: list(read.encode(text, add_special_tokens=False).ids)


def _prove(encode: Encode, data: dict[str, Any], path: str) -> None:
    """Refuses a large vocabulary of which only bytes or unknowns are used."""
    text = PROBES[1] * 4
    tokens = len(encode(text)) - len(encode(""))
    most = len(text) * 9 // 10 if len(data["model"]["vocab"]) > 1000 else len(text)
    if not len(text) // 20 < tokens <= most:
        raise _refused(path, f"makes {tokens} tokens of {len(text)} characters of English and numbers")


def _refused(path: Path | str, problem: str, *, hint: str = "") -> BadInput:
    return BadInput(
        f"{str(path)!r} {problem}",
        place="from_file",
        hint=hint or "give the tokenizer.json of a model, whole and unchanged",
    )
