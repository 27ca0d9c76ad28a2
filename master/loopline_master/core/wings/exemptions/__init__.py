"""Exemptions: times in which a job holds no other back."""
