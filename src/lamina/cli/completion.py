"""`lamina completion`: a completion script for bash, zsh or fish, written from the parsers of the commands.

The script has the names of all commands and of their options, so that a shell needs no Python to complete.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_EXAMPLES = """\
examples:
  lamina completion bash > ~/.local/share/bash-completion/completions/lamina
  lamina completion zsh > ~/.zfunc/_lamina          (a folder of your fpath)
  lamina completion fish > ~/.config/fish/completions/lamina.fish
"""

SHELLS = ("bash", "zsh", "fish")


class CommandOption(NamedTuple):
    """An option of a command: its names, what it does, whether a value follows, and which ones."""

    names: tuple[str, ...]
    summary: str
    takes_value: bool
    choices: tuple[str, ...]


class CommandWords(NamedTuple):
    """A command as a shell completes it. `words` are those that may come first: names of a subcommand."""

    name: str
    summary: str
    options: tuple[CommandOption, ...]
    words: tuple[str, ...]


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")


def run(arguments: argparse.Namespace) -> int:
    print(write_completion(arguments.shell), end="")
    return 0


def write_completion(shell: str) -> str:
    """The script for one shell."""
    commands = list(list_commands())
    writers = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}
    return "\n".join(writers[shell](commands)) + "\n"


def list_commands() -> Iterator[CommandWords]:
    """Every command with its options, read from its parser."""
    from lamina.cli import COMMANDS, parser_for  # noqa: PLC0415 - it imports this module when it is run

    for name, summary in COMMANDS.items():
        actions = parser_for(name)._actions  # noqa: SLF001 - argparse has no other list of them
        options = tuple(_read_option(action) for action in actions if action.option_strings)
        yield CommandWords(name, summary, options, _first_words(actions))


def _first_words(actions: Iterable[argparse.Action]) -> tuple[str, ...]:
    """The choices of the first positional argument, if it has any."""
    for action in actions:
        if not action.option_strings:
            return _choices_of(action)
    return ()


def _read_option(action: argparse.Action) -> CommandOption:
    summary = (action.help or "").partition(";")[0].partition(" (")[0]
    return CommandOption(
        tuple(action.option_strings), summary, takes_value=action.nargs != 0, choices=_choices_of(action)
    )


def _choices_of(action: argparse.Action) -> tuple[str, ...]:
    """The words that an argument may be, none if it may be anything."""
    if action.choices is None:
        return ()
    return tuple(str(choice) for choice in action.choices)


def _write_bash(commands: list[CommandWords]) -> Iterator[str]:
    """The lines of a completion for bash: the commands, the choices of options, then all options."""
    yield "# bash completion for lamina"
    yield "_lamina() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    names = " ".join(command.name for command in commands)
    yield f'        COMPREPLY=($(compgen -W "{names} --help --version" -- "$current"))'
    yield "        return"
    yield "    fi"
    yield '    case "${COMP_WORDS[1]}:$previous" in'
    for command in commands:
        for option in command.options:
            if option.choices:
                patterns = "|".join(f"{command.name}:{name}" for name in option.names)
                words = " ".join(option.choices)
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{words}" -- "$current")); return ;;'
    yield "    esac"
    yield '    case "${COMP_WORDS[1]}" in'
    for command in commands:
        words = " ".join(name for option in command.options for name in option.names)
        yield f'        {command.name}) words="{words}" first="{" ".join(command.words)}" ;;'
    yield "        *) return ;;"
    yield "    esac"
    yield '    if [[ "$current" == -* ]]; then'
    yield '        COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield '    elif [ "$COMP_CWORD" -eq 2 ] && [ -n "$first" ]; then'
    yield '        COMPREPLY=($(compgen -W "$first" -- "$current"))'
    yield "    else"
    yield '        COMPREPLY=($(compgen -f -- "$current"))'
    yield "    fi"
    yield "}"
    yield "complete -o filenames -F _lamina lamina"


def _write_zsh(commands: list[CommandWords]) -> Iterator[str]:
    """The lines of a completion for zsh: the commands with their summaries, then the options of each."""
    yield "#compdef lamina"
    yield "_lamina() {"
    yield "    local -a commands"
    yield "    if (( CURRENT == 2 )); then"
    yield "        commands=("
    for command in commands:
        yield f"            {_quote(f'{command.name}:{command.summary}')}"
    yield "        )"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield '    local command="$words[2]"'
    yield "    shift words; (( CURRENT-- ))"
    yield '    case "$command" in'
    for command in commands:
        specifications = [_zsh_option(option, name) for option in command.options for name in option.names]
        if command.words:
            specifications.append(_quote(f"1:word:({' '.join(command.words)})"))
        specifications.append(_quote("*:file:_files"))
        yield f"        {command.name}) _arguments {' '.join(specifications)} ;;"
    yield "    esac"
    yield "}"
    yield '_lamina "$@"'


def _zsh_option(option: CommandOption, name: str) -> str:
    """An option as `_arguments` reads it: '--engine[what runs the replay]:value:(local dask ray)'."""
    summary = option.summary.replace("[", "(").replace("]", ")").replace(":", " ")
    specification = f"{name}[{summary}]"
    if option.choices:
        specification += f":value:({' '.join(option.choices)})"
    elif option.takes_value:
        specification += ":value:_files"
    return _quote(specification)


def _write_fish(commands: list[CommandWords]) -> Iterator[str]:
    """The lines of a completion for fish: first the commands, then the words and options of each."""
    yield "# fish completion for lamina"
    for command in commands:
        yield (
            f"complete -c lamina -n __fish_use_subcommand -f -a {command.name} -d {_quote(command.summary)}"
        )
    for command in commands:
        condition = f"-n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            yield f"complete -c lamina {condition} -a {_quote(' '.join(command.words))}"
        for option in command.options:
            yield f"complete -c lamina {condition} {_fish_option(option)}"


def _fish_option(option: CommandOption) -> str:
    """An option as fish writes it: `-l window -d 'tokens' -r`."""
    words = []
    for name in option.names:
        if name.startswith("--"):
            words += ["-l", name.removeprefix("--")]
        else:
            words += ["-s", name.removeprefix("-")]
    words += ["-d", _quote(option.summary)]
    if option.choices:
        words += ["-x", "-a", _quote(" ".join(option.choices))]
    elif option.takes_value:
        words.append("-r")
    return " ".join(words)


def _quote(text: str) -> str:
    """The text as one word of any of the shells."""
    return "'" + text.replace("\\", "").replace("'", "’") + "'"
