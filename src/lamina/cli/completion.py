"""Completion of commands and options for bash, zsh and fish, made from the parsers."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.cli.parser import Parser

SHELLS = ("bash", "zsh", "fish")

_BASH = """\
_lamina() {
  local words="COMMANDS"
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "${COMP_WORDS[1]}" in
CASES
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _lamina lamina
"""


def write_completion(shell: str, parsers: Mapping[str, Parser]) -> str:
    """The script that a shell reads at its start."""
    words = {name: " ".join(list_words(parser)) for name, parser in parsers.items()}
    if shell == "fish":
        commands = " ".join(parsers)
        lines = [f"complete -c lamina -n __fish_use_subcommand -a '{commands}'"]
        for name, options in words.items():
            lines.append(f"complete -c lamina -n '__fish_seen_subcommand_from {name}' -a '{options}'")
        return "\n".join(lines)
    cases = "\n".join(f'      {name}) words="{options}" ;;' for name, options in words.items())
    script = _BASH.replace("COMMANDS", " ".join(parsers)).replace("CASES", cases)
    if shell == "zsh":
        return f"autoload -U +X bashcompinit && bashcompinit\n{script}"
    return script


def list_words(parser: Parser) -> list[str]:
    """The long options of a command, and its actions."""
    options = [
        name
        for name in parser.format_usage().replace("]", " ").replace("[", " ").split()
        if name.startswith("--")
    ]
    return [*parser.actions, *sorted(set(options) - {"--"})]
