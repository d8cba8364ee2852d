from __future__ import annotations

import pytest

from lamina.core.text.sentences import Phrases


@pytest.mark.parametrize(
    ("table", "text", "place"),
    [
        ("must", "mustard", None),
        ("allerg*", "two allergies", 4),
        ("allerg*", "two analleges", None),
        ("soy alérgic*", "yo soy alérgica a eso", 3),
        ("m'*", "ça m'ennuie", 3),
        ("*ieron", "ellos comieron", 6),
        ("*ieron", "ieronimo", None),
        ("*ieron | must", "comieronse", None),
        ("说错", "我说错了", 1),
    ],
)
def test_a_star_stands_for_the_rest_of_a_word(table: str, text: str, place: int | None) -> None:
    assert Phrases(table).find(text) == place
