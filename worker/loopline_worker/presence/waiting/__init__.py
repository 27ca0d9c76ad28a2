"""Waiting without asyncio: how probes are notified, in the agent and in the reporter alike.

What is notified is a *routine* (``routine``): a generator that yields what it waits for, a file or a time. The agent
runs routines in asyncio, as all that it does (``in_asyncio``). The reporter, which every desktop keeps for as long as
somebody is logged in, has a loop of its own (``poll_loop``), and so goes without asyncio.
"""
