"""The version of the installed package. It has a file of its own, because finding it out is slow."""

from importlib.metadata import version

__version__ = version("lamina-context")
