"""Finds a judge by what is at hand: torch for a GPU and thousands of rows, llama.cpp for a small sample.

find_judge("qwen2.5-coder-0.5b.gguf")       torch if it is installed, else llama.cpp on the processor
find_judge("llama:qwen2.5-coder-0.5b.gguf") llama.cpp, whatever else is installed
find_judge("torch:models/qwen2.5-coder")    torch, with a folder or a name that transformers knows
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from bench.judging.llama_judge import run_llama_judge
from bench.judging.port import Judge
from bench.judging.torch_judge import TorchJudge
from lamina.errors import BadInput


@contextmanager
def find_judge(name: str) -> Iterator[Judge]:
    """The judge of this name, until the context ends.

    The docstring of this module has a name of each sort.
    """
    match name.split(":", 1):
        case ["torch", path]:
            yield TorchJudge(path)
        case ["llama", path]:
            with run_llama_judge(path) as judge:
                yield judge
        case _ if name.endswith(".gguf") and _has_torch():
            yield TorchJudge(name)
        case _ if name.endswith(".gguf"):
            with run_llama_judge(name) as judge:
                yield judge
        case _:
            hint = "give a .gguf file, torch:FOLDER or llama:FILE.gguf"
            raise BadInput(repr(name), place="judge", hint=hint)


def _has_torch() -> bool:
    return find_spec("torch") is not None and find_spec("transformers") is not None
