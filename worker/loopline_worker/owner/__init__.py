"""The owner's page and command: what the grid does on this computer, and a switch to keep it off.

``server`` answers on the loopback interface only, ``page`` is what a browser shows, ``state`` what both say, and
``python -m loopline_worker.owner`` (``loopline owner``) is the same for a terminal. Nothing here acts on the grid.
"""
