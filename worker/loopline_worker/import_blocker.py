"""The import blocker: keeps out modules that libraries would import and the agent never uses, to save memory.

It is imported before anything else. pydantic looks for its plug-ins among all installed packages, which takes a
twentieth of the memory of an idle agent; an agent has none.
"""

from __future__ import annotations

import sys
from types import ModuleType


def _no_plugins() -> tuple[()]:
    return ()


class _Loader(ModuleType):
    get_plugins = staticmethod(_no_plugins)


sys.modules.setdefault("pydantic.plugin._loader", _Loader("pydantic.plugin._loader"))
