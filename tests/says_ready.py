"""A program that says that it has begun, and then reads until its stdin is closed: for tests of signals."""

import sys

print("ready", flush=True)
sys.stdin.read()
