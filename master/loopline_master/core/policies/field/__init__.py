"""Policies of the literature on bags of tasks in desktop grids, for comparison with ours.

Anglano and Canonico ("Scheduling algorithms for multiple bag-of-task applications on desktop grids: a knowledge-free
approach", IPDPS 2008) schedule several jobs (bags) in two stages, neither of which knows sizes or speeds:

1. *Bag selection* decides whose turn it is: ``fcfs-share``, ``rr-nrf``, ``long-idle``. One file each.
2. *Within the bag*, WQR-FT (``wqr``, work queue with replication) starts a waiting task, or else replicates a running
   one, up to a threshold: here the scheduler's own ``max_replicas``, which is 2 as in their studies.

Lost tasks are started again by the scheduler, under every policy: that is the FT of WQR-FT. They continue from
checkpoints if their job takes any. None of the papers has an order guarantee; here the hold is the scheduler's, and
can be switched off (order ``none``) to run a policy as it was published.

All are registered for comparison only: the simulator runs them, a master refuses them. No implementation of their
authors was at hand for comparison: if a paper leaves a choice, the policy's own file names the choice made.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
