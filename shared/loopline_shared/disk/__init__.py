"""Files on the disks of all programs."""
