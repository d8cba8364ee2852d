"""Qwen2 in torch, from a GGUF file: read, taught, and served with a prefix cache for many games at a time.

Every game has its own place in the cache. A new request is compared with what stands there, and only what
differs is computed, as a server with a prefix cache does it. How many tokens that were is counted: it is what
a request costs without any provider's prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch  # type: ignore[import-not-found]  # only with a model
import torch.nn.functional as F  # type: ignore[import-not-found]  # noqa: N812 - its usual name
from gguf import GGUFReader, quants
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor, nn

from bench.proof.games.chat_text import CALL_ENDS
from lamina.errors import BadInput

SPECIAL = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MOST_NEW = 72
"""Tokens of one call. A recall with its key takes about 45."""

CHUNK = 1024
TOKENS_AT_ONCE = 24_576
"""Tokens of requests that are computed together; it bounds the memory of the masks."""


class ModelShape(NamedTuple):
    """The sizes of a model."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    rope_base: float
    epsilon: float

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class PlayerTokenizer:
    """Texts as tokens. Pieces between special tokens are tokens of their own, so they are kept."""

    def __init__(self, path: Path) -> None:
        kept = path.with_suffix(".tokenizer.json")
        if kept.exists():
            tokenizer = Tokenizer.from_file(str(kept))
        else:
            tokenizer = self._from_gguf(path)
            tokenizer.save(str(kept), pretty=False)
        self._tokenizer = tokenizer
        self.end = tokenizer.token_to_id(CALL_ENDS) or 0
        self.encode: Callable[[str], tuple[int, ...]] = lru_cache(maxsize=20_000)(self._encode)

    @staticmethod
    def _from_gguf(path: Path) -> Tokenizer:
        """The tokenizer as the file describes it. Reading it takes long, so it is kept beside the file."""
        reader = GGUFReader(path)
        words = _read_field(reader, "tokenizer.ggml.tokens")
        merges = [tuple(merge.split(" ")) for merge in _read_field(reader, "tokenizer.ggml.merges")]
        vocabulary = {word: number for number, word in enumerate(words)}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False))
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in SPECIAL])
        return tokenizer

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))


class Block(nn.Module):  # type: ignore[misc]
    """One layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        kv_width = shape.kv_heads * shape.head_width
        self.attn_norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.attn_q = nn.Linear(shape.width, shape.width)
        self.attn_k = nn.Linear(shape.width, kv_width)
        self.attn_v = nn.Linear(shape.width, kv_width)
        self.attn_output = nn.Linear(shape.width, shape.width, bias=False)
        self.ffn_norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.ffn_gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.ffn_up = nn.Linear(shape.width, shape.inner, bias=False)
        self.ffn_down = nn.Linear(shape.inner, shape.width, bias=False)
        self.shape = shape

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Callable[..., Tensor]) -> Tensor:
        batch, length, _ = x.shape
        normed = self.attn_norm(x)
        heads, kv_heads, width = self.shape.heads, self.shape.kv_heads, self.shape.head_width
        q = _rotate(self.attn_q(normed).view(batch, length, heads, width), turn)
        k = _rotate(self.attn_k(normed).view(batch, length, kv_heads, width), turn)
        v = self.attn_v(normed).view(batch, length, kv_heads, width)
        x = x + self.attn_output(attend(q, k, v).reshape(batch, length, heads * width))
        normed = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class PlayerModel(nn.Module):  # type: ignore[misc]
    """The whole model. The words that come in and those that go out share their weights."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = nn.RMSNorm(shape.width, eps=shape.epsilon)

    def hidden(
        self, tokens: Tensor, positions: Tensor, attend: Callable[[int], Callable[..., Tensor]]
    ) -> Tensor:
        """What the model thinks after each token. `attend(layer)` says how the layer looks back."""
        x = self.token_embd(tokens)
        turn = self._turn(positions)
        for number, block in enumerate(self.blk):
            x = block(x, turn, attend(number))
        return self.output_norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.token_embd.weight)

    def _turn(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        half = self.shape.head_width // 2
        steps = torch.arange(half, device=positions.device, dtype=torch.float32) / half
        angles = positions[..., None].float() * torch.exp(-math.log(self.shape.rope_base) * steps)
        return angles.cos()[:, :, None], angles.sin()[:, :, None]


def causal(_layer: int) -> Callable[..., Tensor]:
    """How a layer looks back when it is taught: at everything before, in the same row."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        groups = q.shape[2] // k.shape[2]
        k = k.repeat_interleave(groups, dim=2)
        v = v.repeat_interleave(groups, dim=2)
        looked = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        return looked.transpose(1, 2)

    return attend


def load_model(path: Path, *, dtype: torch.dtype = torch.float32) -> PlayerModel:
    """The model in a GGUF file of Qwen2, with its weights as plain numbers again."""
    reader = GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def field(name: str) -> Any:
        return _read_field(reader, f"qwen2.{name}")

    shape = ModelShape(
        vocabulary=int(tensors["token_embd.weight"].shape[1]),
        width=field("embedding_length"),
        inner=field("feed_forward_length"),
        layers=field("block_count"),
        heads=field("attention.head_count"),
        kv_heads=field("attention.head_count_kv"),
        rope_base=field("rope.freq_base"),
        epsilon=field("attention.layer_norm_rms_epsilon"),
    )

    def unpack(tensor: Any) -> tuple[str, Tensor]:
        numbers = np.array(quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        return tensor.name, torch.from_numpy(numbers).to(dtype)

    with torch.device("meta"):
        model = PlayerModel(shape)
    with ThreadPoolExecutor() as threads:
        state = dict(
            threads.map(unpack, (tensor for name, tensor in tensors.items() if name != "output.weight"))
        )
    model.load_state_dict(state, assign=True)
    return model


class Place:
    """What of one game stands in the cache."""

    def __init__(self) -> None:
        self.tokens: list[int] = []


class PrefixCache:
    """Keys and values of many games, each of at most `length` tokens."""

    def __init__(self, model: PlayerModel, places: int, length: int) -> None:
        shape = model.shape
        weight = model.token_embd.weight
        size = (shape.layers, places, length + 1, shape.kv_heads, shape.head_width)  # one for what is padded
        self.length = length
        self.k = torch.zeros(size, dtype=weight.dtype, device=weight.device)
        self.v = torch.zeros(size, dtype=weight.dtype, device=weight.device)
        self.places = [Place() for _ in range(places)]


class AskedCall(NamedTuple):
    """A request for the next call of a game."""

    place: int
    tokens: Sequence[int]


class ModelAnswer(NamedTuple):
    """What was written, and how many tokens of the request had to be computed for it."""

    tokens: list[int]
    computed: int


class PlayerServer:
    """Answers many games together, always with the most likely token."""

    def __init__(self, model: PlayerModel, cache: PrefixCache, *, end: int) -> None:
        self.model = model
        self.cache = cache
        self.end = end
        self.device = model.token_embd.weight.device

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def answer(self, asked: Sequence[AskedCall]) -> list[ModelAnswer]:
        """The calls that the model writes. A request longer than the cache gets an empty one."""
        written: list[list[int]] = [[] for _ in asked]
        computed = [0] * len(asked)
        first: dict[int, int] = {}
        todo = []
        for at, each in enumerate(asked):
            if len(each.tokens) + MOST_NEW > self.cache.length:
                continue
            known = self.cache.places[each.place].tokens
            shared = _shared_length(known, each.tokens)
            shared = min(shared, len(each.tokens) - 1)
            computed[at] = len(each.tokens) - shared
            todo.append((at, shared))
        todo.sort(key=lambda pair: computed[pair[0]])
        for group in _groups(todo, computed):
            first.update(self._read(asked, group))
        self._write(asked, first, written)
        for at, each in enumerate(asked):
            if at in first:
                self.cache.places[each.place].tokens = [*each.tokens, *written[at]]
        return [ModelAnswer(tokens, count) for tokens, count in zip(written, computed, strict=True)]

    def _read(self, asked: Sequence[AskedCall], group: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        """Compute what is new of some requests. Yields the first token of each answer."""
        places = torch.tensor([asked[at].place for at, _ in group], device=self.device)
        new = [list(asked[at].tokens[shared:]) for at, shared in group]
        starts = [shared for _, shared in group]
        longest = max(map(len, new))
        last: list[Tensor | None] = [None] * len(group)
        for begin in range(0, longest, CHUNK):
            pieces = [tokens[begin : begin + CHUNK] for tokens in new]
            rows = [row for row, piece in enumerate(pieces) if piece]
            width = max(len(pieces[row]) for row in rows)
            tokens = torch.zeros((len(rows), width), dtype=torch.long)
            positions = torch.full((len(rows), width), self.cache.length, dtype=torch.long)
            for line, row in enumerate(rows):
                size = len(pieces[row])
                tokens[line, :size] = torch.tensor(pieces[row])
                positions[line, :size] = torch.arange(starts[row] + begin, starts[row] + begin + size)
            chosen = places[torch.tensor(rows, device=self.device)]
            hidden = self._run(tokens.to(self.device), positions.to(self.device), chosen)
            for line, row in enumerate(rows):
                if begin + CHUNK >= len(new[row]):
                    last[row] = hidden[line, len(pieces[row]) - 1]
        ends = torch.stack([state for state in last if state is not None])
        best = self.model.logits(ends).argmax(dim=-1).tolist()
        return [(at, token) for (at, _), token in zip(group, best, strict=True)]

    def _write(self, asked: Sequence[AskedCall], first: dict[int, int], written: list[list[int]]) -> None:
        active = list(first)
        for at in active:
            written[at].append(first[at])
        for _ in range(MOST_NEW - 1):
            active = [at for at in active if written[at][-1] != self.end]
            if not active:
                return
            tokens = torch.tensor([[written[at][-1]] for at in active], device=self.device)
            lengths = [len(asked[at].tokens) + len(written[at]) - 1 for at in active]
            positions = torch.tensor(lengths, device=self.device)[:, None]
            places = torch.tensor([asked[at].place for at in active], device=self.device)
            hidden = self._run(tokens, positions, places)
            best = self.model.logits(hidden[:, -1]).argmax(dim=-1).tolist()
            for at, token in zip(active, best, strict=True):
                written[at].append(token)

    def _run(self, tokens: Tensor, positions: Tensor, places: Tensor) -> Tensor:
        used = int(torch.where(positions < self.cache.length, positions, 0).max()) + 1
        reach = min((used + 63) // 64 * 64, self.cache.length)
        rows, length = tokens.shape
        groups = self.model.shape.heads // self.model.shape.kv_heads
        sees = torch.arange(reach, device=self.device)[None, None] <= positions[:, :, None]
        mask = torch.zeros((rows, 1, length, reach), dtype=self.cache.k.dtype, device=self.device)
        mask.masked_fill_(~sees[:, None], float("-inf"))
        mask = mask.repeat(1, 1, groups, 1)

        def attend_in(layer: int) -> Callable[..., Tensor]:
            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                kept_k, kept_v = self.cache.k[layer], self.cache.v[layer]
                kept_k[places[:, None], positions] = k
                kept_v[places[:, None], positions] = v
                all_k = kept_k[places, :reach].transpose(1, 2)
                all_v = kept_v[places, :reach].transpose(1, 2)
                kv_heads, width = k.shape[2], k.shape[3]
                # The heads of a group share their keys: they stand as more questions of one head.
                asked = q.view(rows, length, kv_heads, groups, width).permute(0, 2, 3, 1, 4)
                asked = asked.reshape(rows, kv_heads, groups * length, width)
                looked = F.scaled_dot_product_attention(asked, all_k, all_v, attn_mask=mask)
                looked = looked.view(rows, kv_heads, groups, length, width).permute(0, 3, 1, 2, 4)
                return looked.reshape(rows, length, kv_heads * groups, width)

            return attend

        return self.model.hidden(tokens, positions, attend_in)


def _read_field(reader: GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    if field is None:
        raise BadInput(f"it has no field {name!r}", place="model", hint="give a GGUF file of Qwen2")
    return field.contents()


def _shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def _groups(todo: list[tuple[int, int]], computed: list[int]) -> Iterable[list[tuple[int, int]]]:
    """Requests with about as much to compute, so many that they fit the memory."""
    group: list[tuple[int, int]] = []
    for pair in todo:
        width = min(computed[pair[0]], CHUNK)
        if group and (len(group) + 1) * width > TOKENS_AT_ONCE:
            yield group
            group = []
        group.append(pair)
    if group:
        yield group


def _rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = turn
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1).to(x.dtype)
