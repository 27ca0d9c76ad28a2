"""``loopline completion``: completion of commands and options in the shell, by the library that reads them."""

from __future__ import annotations

from typing import Literal

from rich.text import Text

from loopline.cli.common import PLAIN, Common
from loopline.cli.errors import usage

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell | None = None, /, *, install: bool = False, common: Common = PLAIN) -> None:
    """Print the completion script of a shell, for `eval "$(loopline completion bash)"`.

    Parameters
    ----------
    shell
        bash, zsh or fish (default: the shell of this terminal).
    install
        Install it for this user instead, and say where.
    """
    from loopline.cli import app  # which lists this command

    whole = app.build(None)
    whole.help_format = "markdown"  # descriptions without backticks
    try:
        if install:
            place = whole.install_completion(shell=shell)
            common.show({"file": str(place)}, lambda: Text(f"{place} is for shells that are started from now on"))
            return
        script = whole.generate_completion(shell=shell)
    except RuntimeError:
        raise usage("cannot tell which shell this is", "name it: loopline completion bash, zsh or fish") from None
    if common.json:
        common.show({"script": script}, lambda: Text(script))
    else:
        print(script)
