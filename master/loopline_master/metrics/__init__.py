"""Measurements of the master by itself: for Prometheus, and for the page."""

from loopline_master.metrics.growth import Growth
from loopline_master.metrics.metrics import MEDIA_TYPE, InvariantSampler, Metrics, step_watcher

__all__ = ["MEDIA_TYPE", "Growth", "InvariantSampler", "Metrics", "step_watcher"]
