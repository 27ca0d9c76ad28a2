"""``python -m loopline`` is the command ``loopline``."""

import sys

from loopline.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
