"""Past jobs and workers as archives of workloads and availability have them, and measures of parallel jobs."""

from __future__ import annotations

from loopline_shared.model import JobState
from loopline_shared.rest.bodies.base import Body
from loopline_shared.rest.times import Time


class PastJob(Body):
    """A job that has ended: a line of a workload log."""

    id: int
    user: str
    name: str
    state: JobState
    submitted_at: Time
    started_at: Time | None  # its first task
    finished_at: Time
    task_count: int
    nodes: int  # of each task
    slots: int  # of each task, on each node
    results: int  # attempts whose results count, one for each node of a task
    wall_s: float  # run time of these attempts, summed up
    cpu_s: float  # ... their CPU time
    peak_memory_bytes: int  # ... the most of one of them


class WorkerStay(Body):
    """A time when a worker was connected, by the minute."""

    worker: str
    since: Time
    until: Time


class WaitOfNodes(Body):
    """Waits of the jobs of one number of nodes."""

    nodes: int
    jobs: int
    mean_wait_s: float  # from submission to the first start
    longest_wait_s: float  # ... of one of them


class ParallelReport(Body):
    """Measures of parallel jobs that started within a time: utilisation, and whether large jobs wait longer."""

    since: Time
    until: Time
    jobs: int
    truncated: bool  # only the latest of these jobs are counted in the waits
    offered_s: float  # slot time that all workers offered
    used_s: float  # ... that tasks used
    parallel_s: float  # ... that tasks on several nodes used
    mean_wait_s: float | None  # from a job's submission to its start; null: no job has started
    s_per_node: float | None  # slope of the line of waits over nodes; null: all jobs have as many nodes
    correlation: float | None  # of waits with nodes: the closer to 1, the more does a wait depend on the size alone
    residual_s: float | None  # root mean square distance of the waits from the line
    waits: list[WaitOfNodes]  # by number of nodes, the smallest first
