"""What the agent's libraries would load and an agent never uses is kept out: an owner lends memory too.

Imported before anything else. pydantic looks for plug-ins of its own among all packages that are installed, with a
twentieth of all that an idle agent takes; an agent has none.
"""

from __future__ import annotations

import sys
from types import ModuleType


def _no_plugins() -> tuple[()]:
    return ()


class _Loader(ModuleType):
    get_plugins = staticmethod(_no_plugins)


sys.modules.setdefault("pydantic.plugin._loader", _Loader("pydantic.plugin._loader"))
