"""Experiments that ``loopline simulate`` offers: the command of each and a summary.

An experiment is loaded when it is chosen.
"""

EXPERIMENTS: dict[str, tuple[str, str]] = {
    "no-passing": (
        "loopline_simulator.experiments.no_passing:no_passing",
        "Tables 3, 4 and 5 of the no-passing paper beside the paper's own figures, and its Gantt charts.",
    ),
    "fair-start": (
        "loopline_simulator.experiments.fair_start:fair_start",
        "Sabin et al.: how many jobs later arrivals delay, under each policy and order.",
    ),
    "report": (
        "loopline_simulator.experiments.report:report",
        "The whole study: ours and the literature's policies, a recorded log, churn, bounds; as a page.",
    ),
    "full": (
        "loopline_simulator.experiments.full:full",
        "The full world: master crashes, reboots, a lossy network; checks that every guarantee holds.",
    ),
    "what-if": (
        "loopline_simulator.whatif.command:what_if",
        "A live master's event log, replayed under another policy or with one more job.",
    ),
    "trace": (
        "loopline_simulator.experiments.trace:trace",
        "A recorded workload (SWF), on machines with recorded or random availability.",
    ),
    "rack": (
        "loopline_simulator.experiments.rack:rack",
        "Rectangles in a supercomputer's rack: utilisation, fairness, cost; beside the paper's Table 1.",
    ),
    "transfer": (
        "loopline_simulator.experiments.transfer:transfer",
        "Takahashi et al.: files planned by topology and bandwidth, beside blind lines, peers, the master alone.",
    ),
    "dynamic-load": (
        "loopline_simulator.experiments.dynamic_load:dynamic_load",
        "Shirotani et al.: placing jobs of predicted size on machines of different speeds; the cost of stale load.",
    ),
    "users": (
        "loopline_simulator.experiments.users:users",
        "Two users under equal shares: what the order costs each over all jobs, among their own, or not at all.",
    ),
    "global-computing": (
        "loopline_simulator.experiments.global_computing:global_computing",
        "Takefusa et al.'s clients, networks and servers: Tables 1 to 4 beside the paper's, and your scenarios.",
    ),
}
