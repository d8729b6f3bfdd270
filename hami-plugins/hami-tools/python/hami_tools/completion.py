"""The command `hami completion`: prints a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse
import json

from hami.cli import all_commands

Words = dict[str, list[str]]

BASH = """\
_hami() {
  local current="${COMP_WORDS[COMP_CWORD]}" command="" word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in -*) ;; *) command="$word"; break ;; esac
  done
  local words
  case "$command" in
@CASES@
    *) words="@COMMANDS@" ;;
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) if [ -z "$command" ]; then COMPREPLY=($(compgen -W "$words" -- "$current"));
       else COMPREPLY=($(compgen -f -- "$current")); fi ;;
  esac
}
complete -o filenames -F _hami hami hami-core
"""


def completion(arguments: argparse.Namespace) -> int:
    """Print the script for a shell."""
    words = words_of_commands()
    print(json.dumps(words) if arguments.json else SHELLS[arguments.shell](words), end="\n" if arguments.json else "")
    return 0


def words_of_commands() -> Words:
    """Return the options of each command by its name; those of `hami` itself and the commands are under ""."""
    parser, commands = all_commands()
    words = {"": [*_options(parser), *commands]}
    words.update({name: _options(command) for name, command in commands.items()})
    return words


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def bash(words: Words) -> str:
    """Return the script for bash."""
    cases = "\n".join(f'    {name}) words="{" ".join(options)}" ;;' for name, options in words.items() if name)
    return BASH.replace("@CASES@", cases).replace("@COMMANDS@", " ".join(words[""]))


def zsh(words: Words) -> str:
    """Return the script for zsh, which runs that of bash."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash(words)}"


def fish(words: Words) -> str:
    """Return the script for fish."""
    lines = []
    for word in words[""]:
        option = (
            f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" if word.startswith("-") else f"-a {word}"
        )
        lines.append(f"complete -c hami -n __fish_use_subcommand {option}")
    for name, options in words.items():
        lines += [
            f"complete -c hami -n '__fish_seen_subcommand_from {name}' {'-l' if option[1] == '-' else '-s'} "
            f"{option.lstrip('-')}"
            for option in options
            if name
        ]
    return "\n".join([*lines, ""])


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
