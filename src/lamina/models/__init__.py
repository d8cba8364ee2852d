"""What is known of each model: its facts, its names, how its provider frames text, how its tokens count."""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.models.facts import AS_OF, Model, Models, Prices, listed_models, load_models, model, price_of

__all__ = ["AS_OF", "Model", "Models", "Prices", "listed_models", "load_models", "model", "price_of"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {"lamina.models.facts": "AS_OF Model Models Prices listed_models load_models model price_of"},
    )
