"""Optional features of the scheduler, each behind the kernel's door (kernel/mechanism.py)."""
