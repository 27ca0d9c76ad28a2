"""GPUs of this computer: detection, and their use by tasks and by other programs."""
