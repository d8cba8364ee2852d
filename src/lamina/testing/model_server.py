"""A real model server for tests: llama.cpp inside this process, with a model made on the spot.

    with upstream(window=8192) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")

It speaks OpenAI's Chat Completions and Responses and Anthropic's Messages, refuses what is longer than
its window, and reports which tokens of a prompt it had cached. The model has random weights and answers
in letters. One of its tokens is one byte, so `COUNTER` bounds a prompt without asking. Nothing leaves
the loopback interface. Needs `xllamacpp`, `gguf` and `numpy`, which the extra `testing` installs.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import msgspec

from lamina.core.text.estimate import utf8_size
from lamina.core.tokens import Counter, Framing

__all__ = ["ModelServer", "run_model_server", "write_model"]

MODEL = "tiny-letters"
"""What the server calls its model. It answers to every name."""

TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
{% for tool in tools -%}
{{ tool | tojson }}
{% endfor -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
"""ChatML, tools first: what a request adds to the one before it stands at the end of the prompt."""

COUNTER = Counter(
    name="upstream",
    count=utf8_size,
    exact=True,
    framing=Framing(name="upstream", request=11, message=13, call=60, tools=11, tool=100, tool_scale=1400),
)
"""Bytes, and what `TEMPLATE` puts around them or a little more."""

PATIENCE = 30.0
"""Seconds after which a server that does not answer is broken; it takes a fraction of one."""


class ModelServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that answers at `url`. Each of its `slots` has a window of its own."""

    url: str
    window: int
    slots: int


@contextmanager
def run_model_server(
    *, window: int = 4096, slots: int = 1, path: Path | None = None
) -> Iterator[ModelServer]:
    """A server on a free port of the loopback interface, until the context ends.

    `path` is a GGUF file with another model than the one that is made on the spot.
    """
    server = _started(window, slots, path)
    try:
        url = server.listening_address
        _wait_for(f"{url}/slots")  # answered by its main loop: one that has not begun cannot be stopped
        yield ModelServer(url=url, window=window, slots=slots)
    finally:
        del server  # its destructor stops it and waits for its threads


def _started(window: int, slots: int, path: Path | None) -> Any:
    import xllamacpp  # type: ignore[import-untyped]  # noqa: PLC0415 - for tests only

    params = xllamacpp.CommonParams()
    params.model.path = str(path or model_file())
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # any that is free
    params.n_ctx = window * slots
    params.n_parallel = slots
    params.kv_unified = False  # each slot has a window of its own
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = 1  # several would wait for each other wherever the machine is busy
    params.sampling.temp = 0  # the same prompt has the same answer
    params.warmup = params.fit_params = False
    params.verbosity = -1
    return xllamacpp.Server(params)


def _wait_for(address: str) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(address, timeout=PATIENCE):  # noqa: S310 - an address of this machine
                return
        except URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


@cache
def model_file() -> Path:
    """The model, in a folder of this process: made once, removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="lamina-upstream-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / f"{MODEL}.gguf"
    write_model(path)
    return path


WIDTH, LAYERS, HEADS, INNER, LONGEST = 32, 1, 2, 64, 131_072
_BYTES_FROM = 4
"""The token of byte 0: the ones before it have a meaning of their own."""


def write_model(path: Path) -> None:
    """Write a small made-up model as a GGUF file, for a server that needs no real one."""
    import gguf  # noqa: PLC0415 - for tests only

    writer = gguf.GGUFWriter(str(path), "llama")
    _add_shape(writer)
    _add_tensors(writer, vocabulary=_add_tokens(writer, gguf.TokenType))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: Any) -> None:
    writer.add_name(MODEL)
    writer.add_context_length(LONGEST)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-5)


def _add_tokens(writer: Any, sort: Any) -> int:
    """A token for each byte and no longer ones, so that text is as many tokens as it has bytes."""
    tokens = [(b"<unk>", sort.UNKNOWN), (b"<s>", sort.CONTROL), (b"</s>", sort.CONTROL)]
    tokens += [("\u2581".encode(), sort.NORMAL)]  # how the tokenizer writes a space
    tokens += [(f"<0x{byte:02X}>".encode(), sort.BYTE) for byte in range(256)]
    tokens += [(b"<|im_start|>", sort.CONTROL), (b"<|im_end|>", sort.CONTROL)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([sort for _, sort in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_add_bos_token(False)  # noqa: FBT003 - its only argument
    writer.add_add_space_prefix(False)  # noqa: FBT003 - its only argument
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


def _add_tensors(writer: Any, *, vocabulary: int) -> None:
    """Random weights, the same every time.

    The first dimension is one for every token, and speaks for letters and against everything else: bytes
    at random would not be UTF-8, and an answer could not be sent back as it came.
    """
    import numpy as np  # noqa: PLC0415 - for tests only

    random = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.05).astype(np.float32)

    embedding, output = weights(vocabulary, WIDTH), weights(vocabulary, WIDTH)
    embedding[:, 0], output[:, 0] = 1, -1
    output[[_BYTES_FROM + letter for letter in range(ord("a"), ord("z") + 1)], 0] = 1
    tensors = {"token_embd": embedding, "output": output, "output_norm": np.ones(WIDTH, np.float32)}
    for layer in range(LAYERS):
        tensors |= {f"blk.{layer}.attn_{name}": weights(WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        tensors |= {f"blk.{layer}.ffn_{name}": weights(INNER, WIDTH) for name in ("gate", "up")}
        tensors |= {f"blk.{layer}.ffn_down": weights(WIDTH, INNER)}
        tensors |= {f"blk.{layer}.{name}_norm": np.ones(WIDTH, np.float32) for name in ("attn", "ffn")}
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor)
