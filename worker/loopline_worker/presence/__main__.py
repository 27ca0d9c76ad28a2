"""``python -m loopline_worker.presence``: the reporter of a desktop, as light as it can be.

asyncio would load the library for encryption, which takes a tenth of the reporter's memory and has no use here: all
its sockets are this computer's own.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.modules["ssl"] = None  # type: ignore[assignment] # what the import system takes for "it is not there"
    from loopline_worker.presence.reporter import main

    sys.exit(main())
