"""A program for tests of signals: prints that it has started, then reads until its stdin is closed."""

import sys

print("ready", flush=True)
sys.stdin.read()
