"""Which peers there are, how each is configured, and where its environment lies.

Every peer gets the same sizes: it begins to cut at `trigger` tokens and cuts to `target`, where it knows
such a pair. Changes nothing on disk and starts nothing.
"""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import msgspec

from lamina.errors import BadInput

HOME = Path(".peers")
"""Where `make peers` puts the environments: in the folder that it is run in."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A library's way to fit a conversation. `stateful`: it gets its own last output and what is new since.

    `counts` says whose tokens it counts; `recalls` whether the model has a way back to what was left out.
    """

    name: str
    title: str
    environment: str
    package: str
    configured: str
    counts: str
    stateful: bool
    recalls: bool = False


def interpreter(peer: Peer, home: Path = HOME) -> Path:
    """The Python of a peer's environment; refuses where it is not there."""
    python = home / peer.environment / "bin" / "python"
    if not python.exists():
        raise BadInput(f"{peer.name} has no environment in {str(home)!r}", hint="run `make peers`")
    return python.absolute()  # not resolved: through the link, Python would not find the environment


def version(peer: Peer, home: Path = HOME) -> str:
    """The version of a peer's package in its environment."""
    packages = interpreter(peer, home).parent.parent / "lib"
    found = distributions(name=peer.package, path=[str(path) for path in packages.glob("*/site-packages")])
    return next((each.version for each in found), "unknown")


O200K = "o200k, as lamina does for OpenAI"

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            name="pydantic-ai-sliding",
            title="pydantic-ai SlidingWindowCompaction",
            environment="pydantic-ai",
            package="pydantic-ai-harness",
            configured="max_tokens=trigger, keep_tokens=target",
            counts=O200K,
            stateful=True,
        ),
        Peer(
            name="pydantic-ai-tiered",
            title="pydantic-ai TieredCompaction",
            environment="pydantic-ai",
            package="pydantic-ai-harness",
            configured="target_tokens=trigger; ClearToolResults(keep_pairs=3, "
            "min_clear_tokens=trigger-target), then SlidingWindowCompaction(keep_tokens=target)",
            counts=O200K,
            stateful=True,
        ),
        Peer(
            name="langchain-trim",
            title="LangChain trim_messages",
            environment="langchain",
            package="langchain-core",
            configured="max_tokens=trigger, strategy=last, start_on=human, end_on=(human, tool)",
            counts=O200K,
            stateful=False,
        ),
        Peer(
            name="langchain-trim-loops",
            title="LangChain trim_messages, may begin with an answer",
            environment="langchain",
            package="langchain-core",
            configured="as langchain-trim with start_on=(human, ai)",
            counts=O200K,
            stateful=False,
        ),
        Peer(
            name="langchain-clear",
            title="LangChain ContextEditingMiddleware",
            environment="langchain",
            package="langchain",
            configured="ClearToolUsesEdit(trigger=trigger, keep=3)",
            counts=O200K,
            stateful=False,
        ),
        Peer(
            name="langchain-summary",
            title="LangChain SummarizationMiddleware",
            environment="langchain",
            package="langchain",
            configured="trigger=trigger tokens, keep=target tokens; one fixed summary, whose writing "
            "costs nothing",
            counts=O200K,
            stateful=True,
        ),
        Peer(
            name="deepagents",
            title="deepagents SummarizationMiddleware",
            environment="langchain",
            package="deepagents",
            configured="as langchain-summary, with a folder for what it takes out",
            counts=O200K,
            stateful=True,
            recalls=True,
        ),
        Peer(
            name="langmem",
            title="langmem summarize_messages",
            environment="langchain",
            package="langmem",
            configured="max_tokens=trigger; the fixed summary of langchain-summary",
            counts=O200K,
            stateful=True,
        ),
        Peer(
            name="headroom",
            title="Headroom compress",
            environment="headroom",
            package="headroom-ai",
            configured="model_limit=room, kompress_model=disabled; has no budget",
            counts="its own estimate",
            stateful=False,
            recalls=True,
        ),
        Peer(
            name="haystack-sliding",
            title="Haystack SlidingWindowCompactor",
            environment="haystack",
            package="haystack-ai",
            configured="CompactionHook(context_window=window, compact_at=trigger, compact_to=target)",
            counts=O200K,
            stateful=True,
        ),
        Peer(
            name="haystack-prune",
            title="Haystack ToolResultPruningCompactor",
            environment="haystack",
            package="haystack-ai",
            configured="as haystack-sliding",
            counts=O200K,
            stateful=True,
        ),
        Peer(
            name="haystack-offload",
            title="Haystack ToolResultOffloadCompactor",
            environment="haystack",
            package="haystack-ai",
            configured="as haystack-sliding, with a store in memory",
            counts=O200K,
            stateful=True,
            recalls=True,
        ),
        Peer(
            name="llama-index",
            title="LlamaIndex Memory",
            environment="llama-index",
            package="llama-index-core",
            configured="token_limit=trigger, chat_history_token_ratio=1, token_flush_size=trigger-target",
            counts="o200k, without the arguments of calls",
            stateful=True,
        ),
        Peer(
            name="agent-framework",
            title="Agent Framework TruncationStrategy",
            environment="agent-framework",
            package="agent-framework-core",
            configured="max_n=trigger, compact_to=target, preserve_first_user_group",
            counts="o200k of each message as JSON",
            stateful=True,
        ),
        Peer(
            name="autogen",
            title="AutoGen TokenLimitedChatCompletionContext",
            environment="autogen",
            package="autogen-core",
            configured="token_limit=trigger",
            counts=O200K,
            stateful=False,
        ),
        Peer(
            name="openai-agents",
            title="OpenAI Agents ToolOutputTrimmer",
            environment="openai-agents",
            package="openai-agents",
            configured="defaults: recent_turns=2, max_output_chars=500, preview_chars=200; has no budget",
            counts="characters",
            stateful=False,
        ),
        Peer(
            name="strands",
            title="Strands SlidingWindowConversationManager",
            environment="strands",
            package="strands-agents",
            configured="window_size=40 messages (default), pin_first=1, before each call; one reduction "
            "over trigger, and its recovery from overflow over the room",
            counts="messages; o200k for the two thresholds",
            stateful=True,
        ),
        Peer(
            name="litellm",
            title="LiteLLM trim_messages",
            environment="litellm",
            package="litellm",
            configured="max_tokens=trigger",
            counts="o200k of its own package",
            stateful=False,
        ),
    )
}
