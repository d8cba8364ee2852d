"""`lamina doctor --all`: each setting with its origin; wrong ones are refused with their line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lamina.settings import find_line
from tests.cli.running import run

GATEWAY = """\
port = 5000
body_bytes = 1000

[policy]
recall = "off"

[[tokens]]
sha256 = "%s"
workspace = "team"

[upstreams.claude]
url = "https://example.org"
profile = "anthropic"
""" % ("a" * 64)


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's settings, in a file of their own."""
    path = tmp_path / "settings.toml"
    path.write_text('# mine\nmodel = "gpt-5"\n[policy]\nbudget = 1000\n')
    for name in ("LAMINA_KEY", "LAMINA_GATEWAY_TOKEN", "LAMINA_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAMINA_SETTINGS", str(path))
    return path


def test_every_setting_has_its_origin(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = user_file.with_name("gateway.toml")
    file.write_text(GATEWAY)
    monkeypatch.setenv("LAMINA_KEY", "a secret")
    monkeypatch.setenv("LAMINA_STORE", "other.db")
    done = run("doctor", "--settings", file, "--all", "--json")
    rows = json.loads(done.out)["settings"]
    origins = {(row["group"], row["name"]): (row["value"], row["origin"]) for row in rows}
    assert origins["settings", "model"] == ("gpt-5", f"{user_file}:2")
    assert origins["settings", "policy.budget"] == ("window 1000", f"{user_file}:4")
    assert origins["settings", "store"] == ("other.db", "$LAMINA_STORE")
    assert origins["settings", "persona"] == ("-", "default")
    assert origins["settings", "LAMINA_KEY"] == ("set, not shown", "$LAMINA_KEY")
    assert origins["gateway", "port"] == ("5000", f"{file}:1")
    assert origins["gateway", "body_bytes"] == ("1000", f"{file}:2")
    assert origins["gateway", "policy.recall"] == ("off", f"{file}:5")
    assert origins["gateway", "drain_seconds"] == ("30.0", "default")
    assert origins["gateway", "tokens"] == ("1, for team", f"{file}:7")
    assert origins["gateway", "policy.keep"] == ("lowered", "default")
    assert origins["gateway", "upstreams.claude.url"] == ("https://example.org", f"{file}:12")
    assert "secret" not in done.out
    assert "a" * 64 not in done.out
    assert f"{file}:12" in run("doctor", "--all", "--settings", file).out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('model = "x"\npolicy.keep = "some"\n', 2),
        ('model = "x"\nwidnow = 5\n', 2),
        ("model = \n", 1),
        ("policy.budget.reserve = -1\n", 1),
    ],
)
def test_wrong_user_settings_name_their_line(text: str, line: int, user_file: Path) -> None:
    user_file.write_text(text)
    done = run("doctor", "--all")
    assert done.code == 1
    assert f"{user_file}:{line}: " in done.out


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("port = 1\n[upstreams.x]\nurl = 'nowhere'\nprofile = 'vllm'\n", ":3 (upstreams.x.url)"),
        (
            "port = 1\n[upstreams.x]\nurl = 'http://a'\nprofile = 'vllm'\nprefix = '/a/'\n",
            ":5 (upstreams.x.prefix)",
        ),
        ("port = 1\n\nhost = '0.0.0.0'\n", ":3 (host)"),
        ("port = 1\nbody_bytes = 'large'\n", ":2"),
        ("port = 1\n[upstreams.x]\nurl = 'http://a'\nprofile = 'nobody'\n", ":4"),
        ("port = 1\nupstreams = 5\n", ":2"),
        ("port = 1\n[upstreams.x]\nurl = 'http://a'\n", ":2"),
    ],
)
@pytest.mark.usefixtures("user_file")
def test_wrong_gateway_settings_name_their_line_at_the_start(text: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    for command in (["doctor", "--all"], ["serve"]):
        done = run(*command, "--settings", file)
        assert done.code in (1, 2)
        assert f"{file}{place}: " in done.out + done.err


def test_a_line_is_found_by_its_full_name() -> None:
    text = 'a = 1\n# b = 2\n[t]\na = 2\n[t.u]\n"a" = 3\n[x]\nin = { a = 4 }\nd.e = 5\n'
    assert find_line(text, "a") == 1
    assert find_line(text, "b") == 0
    assert find_line(text, "t.a") == 4
    assert find_line(text, "t.u.a") == 6
    assert find_line(text, "x.in.a") == 8
    assert find_line(text, "x.d.e") == 9
    assert find_line(text, "x") == 7
