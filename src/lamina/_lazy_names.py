"""Names of a package that are imported when they are first used, so that the package itself imports quickly.

A user imports from a package, and its modules stay free to move:

    if TYPE_CHECKING:
        from lamina.stores.address import open_store

    __all__ = ["open_store"]

    if not TYPE_CHECKING:
        __getattr__, __dir__ = name_lazily(__name__, {"lamina.stores.address": "open_store"})

Type checkers read the imports and `__all__`, a running program reads the table. tests/test_public_names.py
holds the three together.
"""

from collections.abc import Callable, Mapping
from importlib import import_module


def name_lazily(
    package: str, names_by_module: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. The table has the names of each module in one string."""
    module_of = {name: module for module, names in names_by_module.items() for name in names.split(" ")}

    def find_name(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name]), name)
        setattr(import_module(package), name, value)  # so that the next use does not come here
        return value

    def list_names() -> list[str]:
        return sorted({*vars(import_module(package)), *module_of})

    return find_name, list_names
