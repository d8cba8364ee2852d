from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lamina.errors import BadInput
from lamina.settings import STORE, Settings, config_folder, data_folder, load_settings


def file(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_and_the_environment_stands_over_it(tmp_path: Path) -> None:
    path = file(tmp_path, 'model = "gpt-5"\nwindow = 9000\nstore = "a.db"\n')
    assert load_settings(path, environment={}) == Settings(model="gpt-5", window=9000, store="a.db")
    settings = load_settings(
        environment={"LAMINA_SETTINGS": str(path), "LAMINA_WINDOW": "50", "LAMINA_WORKSPACE": "w"}
    )
    assert settings == Settings(model="gpt-5", window=50, store="a.db", workspace="w")


def test_the_users_own_file_need_not_be_there_but_a_named_one_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_settings(environment={}) == Settings()
    (tmp_path / "lamina").mkdir()
    file(tmp_path / "lamina", 'model = "m"')
    assert load_settings(environment={}).model == "m"
    with pytest.raises(BadInput, match=r"nowhere\.toml: there is no such file"):
        load_settings(tmp_path / "nowhere.toml", environment={})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("modell = 'x'", "unknown field `modell`"),
        ("window = -1", "window"),
        ("window = 'wide'", "window"),
        ("model = 3", "model"),
        ("= 3", "must be TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as caught:
        load_settings(file(tmp_path, text), environment={})
    assert caught.value.place == str(tmp_path / "settings.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        load_settings(tmp_path, environment={})


def test_the_default_store_is_a_file_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "lamina"
    assert Settings().store_address() == str(tmp_path / "lamina" / STORE)
    for address in ("~/x.db", "sqlite+apsw:~/x.db", "postgresql://host/chats", "files:chats"):
        assert Settings(store=address).store_address() == address


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
@pytest.mark.parametrize("folder", ["", "here"])
def test_the_users_folders_on_linux(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder counts as none, as the XDG specification says."""
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_DATA_HOME", folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", folder)
    assert data_folder() == Path("/home/ada/.local/share/lamina")
    assert config_folder() == Path("/home/ada/.config/lamina")
