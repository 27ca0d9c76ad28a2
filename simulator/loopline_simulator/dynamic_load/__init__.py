"""Shirotani et al.'s dynamic load sharing (docs/design/dynamic-load.md): unlike machines, users' programs whose sizes
nobody gives, and load that is known only from what rides on results.
"""
