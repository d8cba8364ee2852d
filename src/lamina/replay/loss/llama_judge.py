"""A judge that runs llama.cpp on the processor, in this process: a small sample, without a GPU.

The server inside this process gets the prompt and one token of the answer after the other. Each request
forces the next token of the answer and asks how likely it was. llama.cpp reports that from the logits as
they were, so forcing changes no figure. Everything before the token is cached from the request before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lamina.errors import BadInput
from lamina.replay.loss.port import WINDOW, Judge
from lamina.replay.loss.server_judge import connect_judge


@contextmanager
def run_llama_judge(path: str, *, window: int = WINDOW) -> Iterator[Judge]:
    """A judge with the model of a GGUF file. The server stops when the context ends."""
    if not Path(path).is_file():
        raise BadInput("there is no such file", place=path, hint="give the path of a GGUF file")
    server = _start_server(path, window)
    try:
        yield connect_judge(server.listening_address)
    finally:
        del server  # its destructor stops it and waits for its threads


def _start_server(path: str, window: int) -> Any:
    try:
        import xllamacpp  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BadInput(
            "the package xllamacpp is not installed", place="judge", hint="pip install xllamacpp"
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = window
    params.n_parallel = 1
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = max((os.cpu_count() or 1) // 2, 1)  # more would wait for each other
    params.warmup = False
    params.fit_params = False
    params.verbosity = -1
    return xllamacpp.Server(params)
