"""The wing *checkpoints*: an attempt continues from a checkpoint of its task."""
