"""Attempts of this worker: each is started, measured, limited and ended here."""
