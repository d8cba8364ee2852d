"""Saved prompts: a Markdown file each, in the folder `prompts` of the user's settings.

A prompt is sent with `/prompt NAME words`. The words stand where the prompt has `{}`, else after it. The
files are the user's own, to be edited with any editor.
"""

from __future__ import annotations

import re
from pathlib import Path

from lamina.errors import BadInput
from lamina.settings import config_folder

FOLDER = "prompts"
PLACE = "{}"

_NAME = re.compile(r"[\w-]{1,60}")
"""A name that is a file name on every system."""


def prompts_folder() -> Path:
    return config_folder() / FOLDER


def list_prompts() -> dict[str, str]:
    """The saved prompts by name, each with its text. A file that cannot be read is left out."""
    prompts: dict[str, str] = {}
    for path in sorted(prompts_folder().glob("*.md")):
        try:
            prompts[path.stem] = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
    return prompts


def fill_prompt(name: str, words: str) -> str:
    """The text of a saved prompt with the user's words in it."""
    prompts = list_prompts()
    if name not in prompts:
        hint = "/prompt lists them; /save NAME TEXT saves one"
        raise BadInput(f"no prompt is called {name!r}", place="/prompt", hint=hint)
    text = prompts[name]
    if PLACE in text:
        return text.replace(PLACE, words)
    return f"{text}\n\n{words}".strip()


def save_prompt(name: str, text: str) -> Path:
    """Write a prompt into its file, in place of an older one of its name."""
    if not _NAME.fullmatch(name):
        hint = "use letters, digits, - and _, at most 60"
        raise BadInput(f"{name!r:.80} is no name for a prompt", place="/save", hint=hint)
    path = prompts_folder() / f"{name}.md"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(f"{text}\n", "utf-8")
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", place=str(path), hint="check it") from None
    return path
