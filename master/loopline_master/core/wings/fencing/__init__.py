"""The wing *fencing*: silent workers end attempts that must not run elsewhere at the same time."""
