"""Waking computers that sleep."""
