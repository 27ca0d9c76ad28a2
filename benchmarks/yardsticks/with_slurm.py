"""Slurm on one node, as root: slurmctld, slurmd and munge, which Debian's slurm-wlm and munge install.

python with_slurm.py KIND --variant array|steps

Many tasks are either one array job, where each task is a job of its own and keeps its slot for a second; or, as is
advised for short ones, steps (`srun`) of one job, as many at a time as it has slots. One task is an `srun`.
Nothing is accounted for. Slurm answers a submission from memory, and writes its state down later, by a thread of its
own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from turns import LINE, arguments, check, each_timed, take_turns, timed

CONF = """
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
SlurmctldDebug=error
SlurmdDebug=error
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MaxArraySize=100001
MaxJobCount=200000
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={slots} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
LOOK_EVERY_S = 0.01
LIMIT_S = 60.0


@contextmanager
def cluster(slots: int) -> Iterator[Path]:
    """Start all of it in a folder of its own, and have Slurm's commands find it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        conf = folder / "slurm.conf"
        conf.write_text(CONF.format(host=socket.gethostname(), ports=free_ports(), folder=folder, slots=slots))
        os.environ["SLURM_CONF"] = str(conf)
        files = [f"--{what}={folder}/munge.{what}" for what in ("socket", "pid-file", "seed-file", "log-file")]
        munge = ["munged", "--foreground", "--force", f"--key-file={key}", *files]
        for line in (munge, ["slurmctld", "-D"], ["slurmd", "-D", "-N", socket.gethostname()]):
            process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        wait_until(lambda: b"idle" in said("sinfo", "--noheader", "--format=%T"))
        yield folder


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, other)]


def said(*line: str) -> bytes:
    return subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit("Slurm did not get so far")
        time.sleep(LOOK_EVERY_S)


def many(folder: Path, variant: str, slots: int, tasks: int) -> None:
    """Return once all tasks have written their line."""
    outputs = Path(tempfile.mkdtemp(dir=folder))
    if variant == "array":
        array = ["--parsable", f"--array=1-{tasks}", f"--output={outputs}/%a", "--ntasks=1", "--wrap"]
        said("sbatch", *array, f"exec {LINE[0]} '{LINE[1]}'")
    else:
        step = f"srun --quiet --exact --ntasks=1 --output={outputs}/@ {LINE[0]} '{LINE[1]}'"
        said("salloc", "--quiet", f"--ntasks={slots}", "sh", "-c", f"seq {tasks} | xargs -P{slots} -I@ {step}")
    wait_until(lambda: sum(entry.stat().st_size > 0 for entry in os.scandir(outputs)) == tasks)
    check((file.read_bytes() for file in outputs.iterdir()), LINE[1].encode() + b"\n", tasks)


def one(_: int = 0) -> None:
    check([said("srun", "--ntasks=1", *LINE)], LINE[1].encode() + b"\n", 1)


def first_result(slots: int) -> None:
    with cluster(slots):
        one()


def main() -> None:
    options = arguments()
    if options.kind == "start":
        take_turns(lambda: timed(partial(first_result, options.slots)))
        return
    with cluster(options.slots) as folder:
        one()
        if options.kind.startswith("one"):
            take_turns(lambda: each_timed(one, options.tasks))
        else:
            run = partial(many, folder, options.variant, options.slots, options.tasks)
            take_turns(lambda: timed(run, options.tasks))


if __name__ == "__main__":
    main()
