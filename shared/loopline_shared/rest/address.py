"""Address of a master's REST API, for modules that need no more than that."""

from __future__ import annotations

API_PREFIX = "/api/v1"
DEFAULT_PORT = 7461
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"
