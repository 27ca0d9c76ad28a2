"""HyperQueue, as its Python package has it: server and worker are threads of this program.

Tasks keep their stdout in files, which are read at the end. It keeps no journal in this form, so nothing survives the
server; its client looks for the end of a job once in a second.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import hyperqueue.client
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
from turns import LINE, SILENT, arguments, check, each_timed, take_turns, timed

hyperqueue.client.create_progress_callback = lambda: lambda jobs: None


def many(client: hyperqueue.client.Client, silent: bool, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder)
        keep = {"stdout": None} if silent else {}
        for _ in range(count):
            job.program(list(SILENT if silent else LINE), stderr=None, **keep)
        client.wait_for_jobs([client.submit(job)])
        if not silent:
            check((file.read_bytes() for file in Path(folder).glob("*.stdout")), LINE[1].encode() + b"\n", count)


def first_result(slots: int) -> None:
    with tempfile.TemporaryDirectory() as folder, LocalCluster(folder, WorkerConfig(cores=slots)) as cluster:
        many(cluster.client(), False, 1)


def main() -> None:
    options = arguments()
    if options.kind == "start":
        take_turns(lambda: timed(partial(first_result, options.slots)))
        return
    with tempfile.TemporaryDirectory() as folder, LocalCluster(folder, WorkerConfig(cores=options.slots)) as cluster:
        client = cluster.client()
        many(client, options.silent, 10)
        if options.kind.startswith("one"):
            take_turns(lambda: each_timed(lambda _: many(client, options.silent, 1), options.tasks))
        else:
            take_turns(lambda: timed(lambda: many(client, options.silent, options.tasks), options.tasks))


if __name__ == "__main__":
    main()
