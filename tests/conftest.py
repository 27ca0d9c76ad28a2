"""What all tests have in common."""

import os

os.environ.setdefault("LOOPLINE_SANDBOX", "off")
"""Most tests look at files that their tasks write beside their folders; those of the sandbox ask for one."""
