"""Prints a script that completes commands and flags in your shell.

  python -m bert_tf.completion bash >> ~/.bashrc
  python -m bert_tf.completion zsh >> ~/.zshrc
  python -m bert_tf.completion fish > ~/.config/fish/completions/bert-tf.fish

The Tab key then completes the commands of bert-tf, their flags, and the values of flags: choices
and file names. In ~/.zshrc, the script must come after compinit.
"""

import dataclasses
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from tfrecords import command
from tfrecords.command import option
from tfrecords.command_help import ALWAYS, docstring, flag_name, ordered_flags, value_type

SHELLS = ("bash", "zsh", "fish")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    needs_tensorflow: ClassVar[bool] = False

    shell: str = option(help="The shell.", choices=SHELLS, kind="positional")


class Flag(NamedTuple):
    """A flag: its name, whether it takes a value, the values to choose from, and its help."""

    name: str
    takes_value: bool
    choices: tuple[str, ...]
    help: str

    @property
    def typed(self) -> str:
        return f"--{self.name}=" if self.takes_value else f"--{self.name}"


def run(options: Options) -> None:
    """Prints the script."""
    from bert_tf.__main__ import COMMANDS

    modules = {name: importlib.import_module(module) for name, module in COMMANDS.items()}
    summaries = {name: docstring(module).partition("\n")[0] for name, module in modules.items()}
    flags = {name: list(_flags(module)) for name, module in modules.items()}
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](summaries, flags))


def _flags(module: object) -> Iterator[Flag]:
    """Yields the flags of a command, in all its forms."""
    forms = [module.Options, *(form[0] for form in getattr(module, "FORMS", {}).values())]
    fields = {flag_name(field): field for form in forms for field in ordered_flags(form)}
    for name, field in fields.items():
        text = re.split(r"(?<=\.)\s", field.metadata["help"])[0]
        switch = value_type(field) is bool
        yield Flag(name, not switch, field.metadata["choices"], text)
        if switch and field.default is not False:
            yield Flag(f"no{name}", False, (), text)
    for name, text in [*ALWAYS, ("--help", "Show the usual flags."), ("--helpfull", "Show all.")]:
        yield Flag(name[2:].partition("=")[0], "=" in name, (), text)


Summaries, Flags = Mapping[str, str], Mapping[str, list[Flag]]


def _bash(summaries: Summaries, flags: Flags) -> str:
    cases = []
    for name, own in flags.items():
        choices = (f"--{f.name}=*) words='{' '.join(f.choices)}' ;;" for f in own if f.choices)
        every = f"--*=*) ;;\n -*) words='{' '.join(flag.typed for flag in own)}' ;;"
        cases.append("\n ".join([f"{name}) case $word in", *choices, f"{every}\n esac ;;"]))
    names = " ".join(summaries)
    return f"""\
_bert_tf() {{
local word=${{COMP_LINE:0:COMP_POINT}} words=
word=${{word##* }}
case $((COMP_CWORD > 1)):${{COMP_WORDS[1]}} in 0:* | 1:help) words='help {names}' ;; esac
((COMP_CWORD > 1)) && case ${{COMP_WORDS[1]}} in
{chr(10).join(cases)}
esac
COMPREPLY=($(compgen -W "$words" -- "${{word#*=}}"))
[[ ${{COMPREPLY-}} == *= ]] && compopt -o nospace
}}
complete -o default -F _bert_tf bert-tf"""


def _zsh(summaries: Summaries, flags: Flags) -> str:
    def spec(flag: Flag) -> str:
        values = f"({' '.join(flag.choices)})" if flag.choices else "_files"
        text = re.sub(r"([\[\]\\])", r"\\\1", flag.help)
        value = f":value:{values}" if flag.takes_value else ""
        return _quoted(f"{flag.typed}[{text}]{value}")

    cases = [
        f"{name}) _arguments {' '.join(map(spec, own))} '*:file:_files' ;;"
        for name, own in flags.items()
    ]
    names = " ".join(_quoted(f"{name}:{text}") for name, text in summaries.items())
    return f"""\
_bert_tf() {{
local -a commands=({names})
if ((CURRENT == 2)) || [[ $words[2] == help ]]; then _describe command commands; return; fi
shift words
((CURRENT--))
case $words[1] in
{chr(10).join(cases)}
esac
}}
compdef _bert_tf bert-tf"""


def _fish(summaries: Summaries, flags: Flags) -> str:
    lines = ["complete -c bert-tf -e", "complete -c bert-tf -n __fish_use_subcommand -f -a help"]
    for name, text in summaries.items():
        when = "'__fish_use_subcommand; or __fish_seen_subcommand_from help'"
        lines.append(f"complete -c bert-tf -n {when} -f -a {name} -d {_quoted(text, 'fish')}")
        for flag in flags[name]:
            values = f" -x -a '{' '.join(flag.choices)}'" if flag.choices else " -r -F"
            lines.append(
                f"complete -c bert-tf -n '__fish_seen_subcommand_from {name}' -l {flag.name}"
                f"{values * flag.takes_value} -d {_quoted(flag.help, 'fish')}"
            )
    return "\n".join(lines)


def _quoted(text: str, shell: str = "") -> str:
    if shell == "fish":
        text = text.replace("\\", "\\\\")
    return "'" + text.replace("'", r"\'" if shell == "fish" else r"'\''") + "'"


if __name__ == "__main__":
    command.run(__name__)
