"""An address and a key open a sealed store: by `key=`, by the settings, or by the environment."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from lamina.errors import BadInput, KeyNeeded, WrongKey
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.stores import MemoryStore
from lamina.stores.sealed import Key, Passphrase, generate, init_file
from tests.sessions.talking import awaited, list_texts

WORDS = "the plans of the summer"


async def talk(address: Path, text: str = WORDS, **arguments: object) -> list[str]:
    """Open a conversation at an address, say something, and give all that was said."""
    async with Session.open(address, "a", model="gpt-5", **arguments) as session:  # type: ignore[arg-type]
        await session.ask(text)
        await session.record("ok")
        return list_texts(session)


def bytes_below(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


def test_a_key_seals_a_store_and_opens_it_again(tmp_path: Path) -> None:
    @awaited
    async def run() -> None:
        address, key = tmp_path / "chats.db", generate()
        await talk(address, key=key, settings=Settings())
        assert WORDS.encode() not in bytes_below(tmp_path)
        assert await talk(address, "more", key=key, settings=Settings()) == [WORDS, "ok", "more", "ok"]
        with pytest.raises(KeyNeeded, match="key="):
            await talk(address, settings=Settings())
        with pytest.raises(WrongKey):
            await talk(address, key=generate(), settings=Settings())

    run()


def test_the_settings_name_the_file_of_the_key(tmp_path: Path) -> None:
    @awaited
    async def run() -> None:
        init_file(tmp_path / "app.key")
        settings = Settings(
            store=str(tmp_path / "chats.db"), key_file=str(tmp_path / "app.key"), model="gpt-5"
        )
        for count in (2, 4):
            async with Session.open(None, "a", settings=settings) as session:
                await session.ask(WORDS)
                await session.record("ok")
                assert len(list_texts(session)) == count
        with pytest.raises(KeyNeeded):
            await talk(tmp_path / "chats.db", settings=Settings())
        assert len(await talk(tmp_path / "chats.db", key=tmp_path / "app.key", settings=Settings())) == 6

    run()


def test_the_environment_may_have_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = generate()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAMINA_KEY", base64.b64encode(key.secret).decode())

    @awaited
    async def run() -> None:
        await talk(tmp_path / "chats.db")
        assert len(await talk(tmp_path / "chats.db", key=key, settings=Settings())) == 4
        with pytest.raises(KeyNeeded):  # settings that are given say everything
            await talk(tmp_path / "chats.db", settings=Settings())

    run()


@pytest.mark.parametrize("key", ["app.key", b"0" * 32, 7])
def test_what_is_no_key_is_told_what_to_give(key: object, tmp_path: Path) -> None:
    @awaited
    async def run() -> None:
        with pytest.raises(BadInput, match="key"):
            await talk(tmp_path / "chats.db", key=key, settings=Settings())

    run()
    assert not (tmp_path / "chats.db").exists()


@awaited
async def test_a_store_that_is_open_takes_no_key() -> None:
    key: Key | Passphrase = generate()
    with pytest.raises(BadInput, match="Sealed"):
        async with Session.open(MemoryStore(), "a", key=key, settings=Settings()):
            pass
