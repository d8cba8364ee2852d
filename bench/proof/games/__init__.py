"""Whole games under each policy, to see whether the player still wins.

    python -m bench.proof.games script --out script.jsonl            a scripted player plays, without a model
    python -m bench.proof.games train MODEL.gguf --out player.pt     teaches a small model to play as he does
    python -m bench.proof.games play MODEL.gguf player.pt --out games.jsonl
    python -m bench.proof.games table games.jsonl

The games are CookingWorld of TextWorldExpress (`pip install textworld-express==1.1.0`; it needs Java). A
recipe is read at the beginning, its ingredients lie in eleven rooms, and what it says is needed to the end.
`cooking.py` is the game and a scripted player, `episodes.py` one game under one policy, `player_model.py` the
model in torch with a prefix cache of its own, `training.py` and `playing.py` the two jobs for a GPU. Training
and playing need torch, numpy, gguf and tokenizers. Nobody judges anything: the game says who won.
"""
