"""The Assign frames of a step, and the runs in them."""
