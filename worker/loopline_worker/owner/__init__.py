"""The owner: the policy of when tasks run here, and the owner's page and command, which show and pause the worker.

``server`` answers on the loopback interface only, ``page`` is its HTML, ``state`` the content of both, and
``python -m loopline_worker.owner`` (``loopline owner``) shows the same in a terminal. No page or command acts
on the grid.
"""
