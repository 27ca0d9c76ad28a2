"""Exemptions: periods in which a job holds no other job."""
