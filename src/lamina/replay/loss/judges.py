"""Finds a judge by what is at hand: a model's file or folder, or the address of a server.

find_judge("qwen2.5-coder-0.5b.gguf")       torch if it is installed, else llama.cpp on the processor
find_judge("llama:qwen2.5-coder-0.5b.gguf") llama.cpp, whatever else is installed
find_judge("torch:models/qwen2.5-coder")    torch, with a folder or a name that transformers knows
find_judge("http://127.0.0.1:8000")         a server: vLLM with prompt_logprobs, or llama.cpp's own
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from lamina.errors import BadInput
from lamina.replay.loss.llama_judge import run_llama_judge
from lamina.replay.loss.port import Judge
from lamina.replay.loss.server_judge import connect_judge
from lamina.replay.loss.torch_judge import TorchJudge


@contextmanager
def find_judge(name: str) -> Iterator[Judge]:
    """The judge of this name, until the context ends.

    The docstring of this module has a name of each sort.
    """
    match name.split(":", 1):
        case ["http" | "https", _]:
            yield connect_judge(name)
        case ["torch", path]:
            yield TorchJudge(path)
        case ["llama", path]:
            with run_llama_judge(path) as judge:
                yield judge
        case _ if name.endswith(".gguf"):
            with _judge_file(name) as judge:
                yield judge
        case _:
            hint = "give a .gguf file, torch:FOLDER, llama:FILE.gguf, or the address of a server"
            raise BadInput(repr(name), place="judge", hint=hint)


@contextmanager
def _judge_file(path: str) -> Iterator[Judge]:
    """A file on this machine: with torch if it is installed, else with llama.cpp."""
    if find_spec("torch") is not None and find_spec("transformers") is not None:
        yield TorchJudge(path)
        return
    with run_llama_judge(path) as judge:
        yield judge
