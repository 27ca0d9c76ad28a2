"""Leases: handling of workers that fall silent."""
