"""Shares: whose turn it is among users, before the policy says which of a user's tasks is next.

Each user has a share of the grid, 1 unless the operator says otherwise. Slots go to the user who has used least for
their share: ``usage`` keeps account, as Slurm's fair tree and HTCondor's user priorities do, and ``turns`` asks the
policy for each user in this order. Where one user alone has something to start, the policy is asked as ever.
"""
