"""Build hook: a wheel takes the man pages along where `make manual` has written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):  # type: ignore[type-arg]
    """Adds build/man to the wheel's data: `man loopline` finds it beside the command."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the pages if they are there. A checkout without them is installed without them."""
        pages = Path(self.root, "build", "man")
        if self.target_name == "wheel" and pages.is_dir():
            build_data["shared_data"][str(pages)] = "share/man/man1"
