"""What servers list about the windows of their models."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.models.facts import choose_window, read_served_windows

VLLM = {"object": "list", "data": [{"id": "acme/parcel-7b", "object": "model", "max_model_len": 8192}]}
LLAMA_CPP = {
    "models": [{"name": "parcel.gguf"}],
    "data": [{"id": "parcel.gguf", "meta": {"n_ctx_train": 131072, "n_ctx": 4096, "n_params": 7}}],
}
LM_STUDIO = {"data": [{"id": "parcel", "max_context_length": 131072, "loaded_context_length": 6000}]}
OPENAI = {"data": [{"id": "gpt-5", "object": "model", "owned_by": "openai"}]}


@pytest.mark.parametrize(
    ("listing", "windows"),
    [
        (VLLM, {"acme/parcel-7b": 8192}),
        (LLAMA_CPP, {"parcel.gguf": 4096}),
        (LM_STUDIO, {"parcel": 6000}),
        (OPENAI, {}),
        ({"data": [{"id": "a", "n_ctx": True}, {"id": "b", "n_ctx": -1}, {"n_ctx": 8}, "c", None]}, {}),
        ({"data": {"id": "a", "n_ctx": 8}}, {}),
        ([], {}),
        (None, {}),
    ],
)
def test_the_window_is_what_the_server_was_started_with(listing: Any, windows: dict[str, int]) -> None:
    assert read_served_windows(listing) == windows


def test_one_served_model_answers_to_every_name() -> None:
    assert choose_window({"parcel.gguf": 4096}, "gpt-5") == 4096
    assert choose_window({"a": 1000, "b": 2000}, "b") == 2000
    assert choose_window({"a": 1000, "b": 2000}, "gpt-5") is None
    assert choose_window({}, "a") is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "meta", "n_ctx", "max_model_len"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_any_listing_can_be_read(listing: Any) -> None:
    for window in read_served_windows({"data": [listing, {"id": "a", "meta": listing}]}).values():
        assert window > 0
