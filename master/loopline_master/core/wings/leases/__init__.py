"""Leases: what becomes of workers that fall silent."""
