"""Shares: decides which user's turn it is, before the policy chooses among the user's tasks.

Each user has a share of the grid, 1 unless the operator sets another. Slots go to the user who has used least for
their share: ``usage`` keeps account, as Slurm's fair tree and HTCondor's user priorities do, and ``turns`` asks the
policy for each user in this order. If only one user has a task to start, the policy is asked as usual.
"""
