"""``loopline completion``: completion of commands and options in the shell, by the library that reads them."""

from __future__ import annotations

from typing import Literal

from loopline.cli.errors import usage

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell | None = None, /, *, install: bool = False) -> None:
    """Print the completion script of a shell: eval "$(loopline completion bash)".

    Parameters
    ----------
    shell
        bash, zsh or fish (default: the shell of this terminal).
    install
        Install it for this user instead, and say where it is.
    """
    from loopline.cli import app  # which lists this command

    whole = app.build(None)
    try:
        if install:
            print(f"installed in {whole.install_completion(shell=shell)}; it works in shells started from now on")
        else:
            print(whole.generate_completion(shell=shell))
    except (RuntimeError, ValueError):
        raise usage("cannot tell which shell this is", "name it: loopline completion bash, zsh or fish") from None
