"""The worker links: one connection a worker, and all of them together."""

from loopline_master.links.worker_links import WorkerLinks

__all__ = ["WorkerLinks"]
