from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lamina.errors import BadInput
from lamina.fitting import Policy
from lamina.sessions.setup import load_user_policy
from lamina.settings import STORE, Settings, config_folder, data_folder, load_settings


def file(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_and_the_environment_may_name_another_store(tmp_path: Path) -> None:
    path = file(tmp_path, 'model = "gpt-5"\nstore = "a.db"\n[policy]\nbudget = 9000\nrecall = "off"\n')
    assert load_settings(path, environment={}) == Settings(
        model="gpt-5", policy={"budget": 9000, "recall": "off"}, store="a.db"
    )
    environment = {"LAMINA_SETTINGS": str(path), "LAMINA_STORE": "b.db", "LAMINA_MODEL": "gpt-5-mini"}
    settings = load_settings(environment=environment)
    assert settings == Settings(model="gpt-5", policy={"budget": 9000, "recall": "off"}, store="b.db")
    assert load_user_policy(settings) == Policy(budget=9_000, recall="off")


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
        ("window = 9000", "unknown field `window`"),
        ("policy = 'wide'", "policy"),
        ("model = 3", "model"),
        ("= 3", "must be TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as caught:
        load_settings(file(tmp_path, text), environment={})
    assert caught.value.place == f"{tmp_path / 'settings.toml'}:1"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("[policy]\nbudget = 'wide'", 2, "budget"),
        ("[policy]\nkeep = 'all'\nbudget.window = -1", 3, "window is -1"),
        ("[policy]\nwindow = 9000", 2, "got `int` - at `..window"),
        ("[policy]\norder = 'newest'", 2, "order"),
        ("policy = {budget = {reserve = -1}}", 1, "reserve is -1"),
    ],
)
def test_what_is_wrong_in_the_policy_is_named_with_its_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    path = file(tmp_path, text)
    environment = {"LAMINA_SETTINGS": str(path)}
    with pytest.raises(BadInput, match=problem) as caught:
        load_user_policy(load_settings(environment=environment), environment)
    assert caught.value.place == f"{path}:{line}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        load_settings(tmp_path, environment={})


def test_the_default_store_is_a_file_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "lamina"
    assert Settings().store_address() == str(tmp_path / "lamina" / STORE)
    for address in ("~/x.db", "sqlite:~/x.db", "postgresql://host/chats", "files:chats"):
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
