"""Counts with a tokenizer's own file: Hugging Face's `tokenizer.json`, read by splintr or tokenizers.

Special tokens of the file are never matched in text, nor are tokens that it puts around a text counted.
The counter says `exact` only if the file's reference implementation, the package `tokenizers`, is installed.
If splintr agrees with it on known texts, splintr counts, because it is quicker; else `tokenizers` does. This
file does not know which model a tokenizer belongs to, and downloads nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from lamina.core.tokens import Counter
from lamina.errors import BadInput
from lamina.models.counters.count_guard import guard_count, split_long_text, without_surrogates

Encode = Callable[[str], list[int]]

PROBES = (
    "Zählt: 世界 🌍 f(x)=x**2  # don't\n",
    "The quick brown fox\n\n\n    jumps   over 13 lazy dogs.\t1234567890\r\n",
    '{"path": "src/a.py", "lines": [1, 22, 333], "ok": true, "note": null}',
    "नमस्ते Привет שלום 한국어 e\u0301 \u00a0\u3000",
    "=" * 40 + " " * 40 + "a" * 40 + "<p><code>x</code>\n" + "\n" * 40,
)
"""Texts on which two readings of one file must agree."""


def from_file(path: str | Path) -> Counter:
    """A counter from a `tokenizer.json`. A text at which it fails is estimated."""
    data = _read_tokenizer(Path(path))
    encode, exact = _choose_encoder(data, str(path))
    name = f"file:{Path(path).parent.name}/{Path(path).name}".replace("file:/", "file:")
    return Counter(name=name, count=guard_count(_EncoderCount(encode), "o200k"), exact=exact)


class _EncoderCount:
    """Counts what an encoder gives for a text, less what it gives for an empty one."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._around = len(encode(""))

    def __call__(self, text: str) -> int:
        """The tokens of a text. A lone surrogate counts as the character that stands for it on the wire."""
        return sum(map(self._count_piece, split_long_text(text)))

    def _count_piece(self, text: str) -> int:
        try:
            ids = self._encode(text)
        except (UnicodeEncodeError, TypeError):
            ids = self._encode(without_surrogates(text))
        return max(0, len(ids) - self._around)


def _read_tokenizer(path: Path) -> dict[str, Any]:
    """A `tokenizer.json`, if it has a vocabulary."""
    try:
        data = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {str(path)!r}: {error.strerror}", place="from_file") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_file(path, f"is not JSON ({error})") from None
    match data:
        case {"model": {"vocab": dict() | list()}}:
            return dict(data)
    raise _bad_file(path, "has no vocabulary")


def _choose_encoder(data: dict[str, Any], path: str) -> tuple[Encode, bool]:
    """The encoder, and whether it is known to be the file's own."""
    plain = msgspec.json.encode(_without_specials(data))
    quick = _load_with_splintr(plain)
    reference = _load_with_tokenizers(plain)
    if reference is None:
        if quick is None:
            raise _bad_file(path, "cannot be read by splintr", hint="install the package tokenizers")
        encode = quick
    elif quick is not None and all(quick(probe) == reference(probe) for probe in PROBES):
        encode = quick
    else:
        encode = reference
    _check_vocabulary(encode, data, path)
    return encode, reference is not None


def _without_specials(data: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer with no token that means more than its text, and none put around a text."""
    added_tokens = data.get("added_tokens") or ()
    plain_tokens = [token for token in added_tokens if not _is_special(token)]
    return {**data, "added_tokens": plain_tokens, "post_processor": None}


def _is_special(token: Any) -> bool:
    """Marked special, or spelled like one: some files leave the mark out for `<think>` and the like."""
    match token:
        case {"content": str() as content}:
            if token.get("special"):
                return True
            return content.startswith(("<", "[")) and content.strip("</>") not in _TAGS
    return True


_TAGS = frozenset(
    "table caption thead tbody tfoot tr th td h1 h2 h3 h4 h5 h6 blockquote strong em b i u s sub sup "
    "code".split()
)
"""Tags that Gemma's vocabularies hold as ordinary tokens."""


def _load_with_splintr(plain: bytes) -> Encode | None:
    """The encoder of splintr, which is fast; None if it is not installed or does not know the model type."""
    try:
        from splintr import from_json_bytes  # noqa: PLC0415 - loaded only when it is needed

        encode: Encode = from_json_bytes(plain).encode_ordinary
    except (ImportError, ValueError):
        return None
    return encode


def _load_with_tokenizers(plain: bytes) -> Encode | None:
    """The encoder of the package tokenizers, which knows every type; None if it is not installed."""
    try:
        tokenizer = import_module("tokenizers").Tokenizer.from_str(plain.decode())
    except Exception:  # noqa: BLE001 - it is not there, or raises nothing narrower
        return None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _check_vocabulary(encode: Encode, data: dict[str, Any], path: str) -> None:
    """Raise `BadInput` for a large vocabulary of which only bytes or unknowns are used."""
    text = PROBES[1] * 4
    tokens = len(encode(text)) - len(encode(""))
    most = len(text)
    if len(data["model"]["vocab"]) > 1000:
        most = len(text) * 9 // 10
    if not len(text) // 20 < tokens <= most:
        raise _bad_file(path, f"makes {tokens} tokens of {len(text)} characters of English and numbers")


def _bad_file(path: Path | str, problem: str, *, hint: str = "") -> BadInput:
    return BadInput(
        f"{str(path)!r} {problem}",
        place="from_file",
        hint=hint or "give the tokenizer.json of a model, whole and unchanged",
    )
