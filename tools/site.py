"""Builds the site, and adds what is not in docs/: two pages of the repository's root.

    python -m tools.site    builds it into build/site; a warning is an error

mkdocs.yml names this file as a hook of mkdocs, which calls the functions that begin with `on_`.

The README is the front page. Links between pages are written for the repository, so they are turned here:
to a page of the site if there is one, else to the file in the repository.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/lamina-context/lamina/blob/main"

ADDED_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
}
"""Files outside docs/ that are pages of the site, and their places there."""

_TEXTS: dict[str, str] = {}
"""The pages of the build that runs, by their places."""

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?(?:\s+\"[^\"]*\")?\))")
_OUTSIDE_ASSET = re.compile(r"<(?:script|link|img)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>")
_FENCE = re.compile(r"^([ \t]*)(```+|~~~+).*?^\1\2[`~]*\s*$", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Build without a word, unless something is wrong. `mkdocs build --quiet` does not see warnings."""
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # a notice of the theme, about its successor
    warnings = logging.StreamHandler()
    warnings.setLevel(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(warnings)
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    except Abort as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        config.plugins.on_shutdown()
    return 0


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    for source, place in ADDED_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=turn_links(text, source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn the links of a page in docs/; the others were turned when they were added."""
    place = page.file.src_uri
    if not page.file.generated_by:
        markdown = turn_links(markdown, f"docs/{place}")
    _TEXTS[place] = markdown
    return markdown


def on_post_build(*, config: Any) -> None:
    """Write llms.txt, a list of all pages, and llms-full.txt, all of them in one file."""
    folder = Path(config.site_dir)
    (folder / "llms.txt").write_text(write_list(_TEXTS, config.site_description), encoding="utf-8")
    texts = [f"<!-- {place} -->\n\n{_TEXTS[place]}" for place in _TEXTS]
    (folder / "llms-full.txt").write_text("\n\n".join(texts), encoding="utf-8")


def write_list(texts: Mapping[str, str], description: str) -> str:
    """The pages of the site in the form of llms.txt: a title, what it is, and a line for each page."""
    lines = ["# lamina", "", f"> {description}", "", "## Pages", ""]
    for place, text in texts.items():
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        opening = re.search(r"^(?![#!<|`\-\s])(.+)$", text, re.MULTILINE)
        line = f"- [{title[1] if title else place}]({place.removesuffix('.md')}.html)"
        if opening:
            line += f": {opening[1].partition('. ')[0].rstrip('.')}."
        lines.append(line)
    return "\n".join([*lines, ""])


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Refuse a page that would load something from elsewhere when it is opened."""
    asset = _OUTSIDE_ASSET.search(output)
    if asset:
        raise PluginError(f"{page.file.src_uri} loads {asset[0]!r}: the site has no outside assets")
    return output


def turn_links(markdown: str, source: str) -> str:
    """The page with links that hold on the site. `source` is where the page is in the repository."""
    here = ADDED_PAGES.get(source, source.removeprefix("docs/"))
    pieces: list[str] = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_turn_piece(markdown[end : fence.start()], source, here), fence[0]]
        end = fence.end()
    pieces.append(_turn_piece(markdown[end:], source, here))
    return "".join(pieces)


def _turn_piece(text: str, source: str, here: str) -> str:
    def turn(match: re.Match[str]) -> str:
        return match[1] + _turn_link(match[2], source, here) + match[3]

    return _LINK.sub(turn, text)


def _turn_link(target: str, source: str, here: str) -> str:
    if "://" in target or target.startswith(("mailto:", "#")):
        return target
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    place = ADDED_PAGES.get(path)
    if place is None and path.startswith("docs/"):
        place = path.removeprefix("docs/")
    if place is None:
        return f"{REPOSITORY}/{path}"
    return posixpath.relpath(place, posixpath.dirname(here) or ".")


if __name__ == "__main__":
    sys.exit(main())
