"""The failure of a build, and whose it is."""

from __future__ import annotations


class BuildError(Exception):
    """An environment cannot be made. ``is_users``: no worker could make it, for its list or its image is wrong."""

    def __init__(self, reason: str, *, is_users: bool = False) -> None:
        super().__init__(reason)
        self.is_users = is_users
