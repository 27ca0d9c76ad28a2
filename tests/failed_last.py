"""Print the tests that failed in the last run, one a line; exit 1 if there are none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_CACHE = Path(".pytest_cache/v/cache/lastfailed")


def main() -> None:
    """Print them."""
    failed = sorted(json.loads(_CACHE.read_text())) if _CACHE.exists() else []
    print("\n".join(failed))
    sys.exit(not failed)


if __name__ == "__main__":
    main()
