"""Optional features of the scheduler, each behind the kernel's door (kernel/door/mechanism.py)."""
