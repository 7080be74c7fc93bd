"""Prints a script that completes commands and flags in bash.

  python -m bert_tf.completion >> ~/.bashrc

The Tab key then completes the commands of bert-tf, their flags, and the values of flags: choices
and file names.
"""

import dataclasses
import importlib
from typing import ClassVar

from bert_tf.base import command
from bert_tf.base.command_help import COMMON_FLAGS, flag_name, ordered_flags, value_type


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The command has no flags of its own."""

    needs_tensorflow: ClassVar[bool] = False


def run(options: Options) -> None:
    """Prints the script."""
    from bert_tf.__main__ import COMMANDS

    names = " ".join(COMMANDS)
    cases = (_case(name, importlib.import_module(module)) for name, module in COMMANDS.items())
    print(f"""\
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
complete -o default -F _bert_tf bert-tf""")


def _case(name: str, module: object) -> str:
    """Returns the branch of the script for a command, in all its forms."""
    forms = [module.Options, *(form[0] for form in getattr(module, "FORMS", {}).values())]
    fields = {flag_name(field): field for form in forms for field in ordered_flags(form)}
    choices = [
        f"--{flag}=*) words='{' '.join(field.metadata['choices'])}' ;;"
        for flag, field in fields.items()
        if field.metadata["choices"]
    ]
    # As they are typed: those that take a value end with "=".
    typed = []
    for flag, field in fields.items():
        switch = value_type(field) is bool
        typed.append(f"--{flag}" if switch else f"--{flag}=")
        if switch and field.default is not False:
            typed.append(f"--no{flag}")
    typed += [flag.partition("=")[0] + ("=" if "=" in flag else "") for flag, _ in COMMON_FLAGS]
    flags = f"--*=*) ;;\n -*) words='{' '.join([*typed, '--help', '--helpfull'])}' ;;"
    return "\n ".join([f"{name}) case $word in", *choices, f"{flags}\n esac ;;"])


if __name__ == "__main__":
    command.run(__name__)
