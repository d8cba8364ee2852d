from __future__ import annotations

import base64
import hashlib
import os
import stat
import sys
import types
from pathlib import Path

import pytest

from lamina.errors import BadInput
from lamina.stores.sealed import (
    Key,
    Passphrase,
    from_env,
    from_file,
    from_keyring,
    generate,
    init_file,
    init_keyring,
    raw,
)
from lamina.stores.sealed.keys import derive_from_passphrase

GOOD = bytes.fromhex("8f14a1c3d29b7e60554e0b96f7c8a93d21e05b7742d6f19c30aa68e4bd071f52")


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        GOOD.hex(),
        GOOD.hex().upper(),
        base64.b64encode(GOOD).decode(),
        base64.urlsafe_b64encode(GOOD).decode().rstrip("="),
        f"  {base64.b64encode(GOOD).decode()}\n",
    ],
)
def test_a_key_is_read_from_bytes_hex_and_base64(value: bytes | str) -> None:
    assert raw(value) == Key(GOOD)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "   ",
        "replace-me-before-deployment",
        "changeme",
        "CHANGE-ME",
        "password",
        "sk-1234",
        "x",
        GOOD[:31],
        GOOD + b"x",
        GOOD[:16].hex(),
        base64.b64encode(GOOD[:16]).decode(),
        bytes(32),
        b"\xff" * 32,
        bytes(range(32)),
        bytes(range(0, 96, 3)),
        GOOD[:16] * 2,
        GOOD[:8] * 4,
        b"thirty-two letters of plain text",
        base64.b64encode(b"thirty-two letters of plain text").decode(),
        "ab" * 32,
        "0123456789abcdef" * 4,
    ],
)
def test_a_key_that_can_be_guessed_is_refused(value: bytes | str) -> None:
    with pytest.raises(BadInput) as error:
        raw(value)
    if len(value) > 8:
        assert str(value) not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short",
        "eleven char",
        "replace-me-before-deployment",
        "Replace me before deployment!",
        "changeme-changeme-2026",
        "Password1234!",
        "passwordpassword",
        "Password password!",
        "correct horse battery staple",
        "abcabcabcabcabc",
        "aaaaaaaaaaaaaaaa",
        "123456789012345",
        "abcdefghijklmno",
        "            ",
        "a lone \ud800 surrogate",
    ],
)
def test_a_passphrase_that_can_be_guessed_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        Passphrase(text)


def test_good_keys_are_never_refused() -> None:
    for _ in range(5_000):
        generate()


def test_secrets_do_not_show_in_what_is_printed() -> None:
    key = Key(GOOD)
    for text in (repr(key), str(key), f"{[key]}", repr(Passphrase("a quiet harbour of 7 lamps"))):
        assert GOOD.hex() not in text
        assert repr(GOOD) not in text
        assert "harbour" not in text
    assert key.id in repr(key)


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINA_KEY", GOOD.hex())
    assert from_env() == Key(GOOD)
    monkeypatch.setenv("LAMINA_KEY", "replace-me-before-deployment")
    with pytest.raises(BadInput, match="LAMINA_KEY: it is a known default"):
        from_env()
    monkeypatch.delenv("LAMINA_KEY")
    with pytest.raises(BadInput, match="not set"):
        from_env()


def test_a_key_file_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key"
    key = init_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert from_file(path) == key
    with pytest.raises(BadInput, match="exists already"):
        init_file(path)
    assert from_file(path) == key
    with pytest.raises(BadInput, match="not there"):
        from_file(tmp_path / "nowhere")


@pytest.mark.skipif(os.name != "posix", reason="rights of files are different elsewhere")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o622])
def test_a_key_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    init_file(path)
    path.chmod(mode)
    with pytest.raises(BadInput, match=f"mode {mode:o}"):
        from_file(path)


def test_a_key_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    for content in (b"", b"changeme\n", b"\xff\xfe", b"{}"):
        path.write_bytes(content)
        with pytest.raises(BadInput):
            from_file(path)
    with pytest.raises((BadInput, IsADirectoryError)):
        from_file(tmp_path)


def test_what_is_no_key_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)  # nobody writes to it
    init_file(tmp_path / "key")
    for path, problem in (
        (tmp_path, "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "key" / "below", "cannot be read"),
        (tmp_path / "a\0b", "cannot be read"),
    ):
        with pytest.raises(BadInput, match=problem):
            from_file(path)
    with pytest.raises(BadInput, match="cannot be made"):
        init_file(tmp_path / "key" / "below")


def test_a_key_comes_from_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords: dict[tuple[str, str], str] = {}
    ring = types.SimpleNamespace(
        get_password=lambda service, user: passwords.get((service, user)),
        set_password=lambda service, user, value: passwords.__setitem__((service, user), value),
    )
    monkeypatch.setitem(sys.modules, "keyring", ring)
    with pytest.raises(BadInput, match="not there"):
        from_keyring("alice")
    key = init_keyring("alice")
    assert from_keyring("alice") == key
    with pytest.raises(BadInput, match="exists already"):
        init_keyring("alice")


def test_a_missing_keyring_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(BadInput, match="not installed"):
        from_keyring("alice")


def test_the_key_of_a_passphrase_is_that_of_scrypt() -> None:
    """Otherwise nothing that was sealed before could be opened."""
    words, salt = "a quiet harbour of 7 lamps", b"0123456789abcdef"
    expected = hashlib.scrypt(words.encode(), salt=salt, n=1 << 16, r=8, p=2, maxmem=1 << 27, dklen=32)
    assert derive_from_passphrase(Passphrase(words), salt) == expected
