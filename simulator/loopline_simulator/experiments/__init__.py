"""The experiments that ``loopline simulate`` knows: where each one's command is, and what it shows.

Nothing of an experiment is loaded before it is chosen.
"""

EXPERIMENTS: dict[str, tuple[str, str]] = {
    "no-passing": (
        "loopline_simulator.experiments.no_passing:no_passing",
        "Tables 3, 4 and 5 of the no-passing paper beside the paper's own figures, and its Gantt charts.",
    ),
    "full": (
        "loopline_simulator.experiments.full:full",
        "The full world: master crashes, reboots, a network that loses; does every promise hold?",
    ),
    "what-if": (
        "loopline_simulator.whatif.command:what_if",
        "A live master's event log, lived through again with another policy or one job more.",
    ),
    "trace": (
        "loopline_simulator.experiments.trace:trace",
        "A workload that others wrote (SWF), on machines as others saw them come and go.",
    ),
    "rack": (
        "loopline_simulator.experiments.rack:rack",
        "Rectangles in a supercomputer's rack: utilisation, fairness, cost; beside the paper's Table 1.",
    ),
    "dynamic-load": (
        "loopline_simulator.experiments.dynamic_load:dynamic_load",
        "Shirotani et al.: where to send jobs of predicted size on unlike machines, and what stale load costs.",
    ),
    "global-computing": (
        "loopline_simulator.experiments.global_computing:global_computing",
        "Takefusa et al.'s clients, networks and servers: Tables 1 to 4 beside the paper's, and scenarios of yours.",
    ),
}
