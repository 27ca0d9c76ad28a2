"""The import blocker: keeps out what libraries would import, or read from disk, and our programs never use.

A program of ours imports it before anything else; what users import never does. pydantic looks for its plug-ins among
all installed packages, which takes a twentieth of the memory of an idle agent; our programs have none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_AUTHORITIES = "SSL_CERT_FILE"


def _no_plugins() -> tuple[()]:
    return ()


class _Loader(ModuleType):
    get_plugins = staticmethod(_no_plugins)


sys.modules.setdefault("pydantic.plugin._loader", _Loader("pydantic.plugin._loader"))


@contextmanager
def without_authorities() -> Iterator[None]:
    """Leave the file of certificate authorities unread, twice of which takes a tenth of the master's imports.

    aiohttp makes two TLS contexts as it is imported. Who connects to a stranger by TLS brings a context of their own.
    """
    before = os.environ.get(_AUTHORITIES)
    os.environ[_AUTHORITIES] = os.devnull
    try:
        yield
    finally:
        del os.environ[_AUTHORITIES]
        if before is not None:
            os.environ[_AUTHORITIES] = before
