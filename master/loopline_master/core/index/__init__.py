"""What the scheduler looks things up in. Every index is a function of the entities as they are."""
