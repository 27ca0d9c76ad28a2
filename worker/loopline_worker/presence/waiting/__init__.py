"""Waiting without asyncio: how probes are notified, in the agent and in the reporter alike.

What is notified is a *routine* (``routine``): a generator that yields what it waits for, a file or a time. The agent
runs routines in asyncio, like the rest of its work (``in_asyncio``). The reporter, which runs on every desktop while
a user is logged in, has a loop of its own (``poll_loop``), and needs no asyncio.
"""
