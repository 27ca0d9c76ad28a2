"""Start an MPI program on the members of a gang, with Open MPI and without ssh.

    loopline submit --nodes 4 --network --time-limit 10m --input gang_mpirun.py --input ring -- \
        python3 gang_mpirun.py ./ring

Rank 0 runs `mpirun`. Where that would call ssh to start its daemon on another computer, it calls this program as its
launch agent: it gives the daemon's command line to the member there, which has been waiting for it at the rendezvous
address since it began. The members' secret is said first. Each member then has one process of the MPI program, and
all end together. Needs Open MPI 4 (`mpirun` and `orted`) on every computer; on rank 0's, Unix sockets.
"""

import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

AGENT = "--agent"
FOLDER = "GANG_MEMBER_FOLDER"
IN_OWN_FOLDER = ["sh", "-c", f'cd "${FOLDER}" && exec "$@"', "sh"]  # mpirun would have all in rank 0's
SOCKET = "agent.sock"  # in the folder of rank 0, where mpirun's launch agents find this program
UNKNOWN, LEFT_ALONE, NO_MPI = 1, 2, 3


def main() -> int:
    if sys.argv[1:2] == [AGENT]:
        return ask_for_daemon(sys.argv[2], sys.argv[3:])
    for program in ("mpirun", "orted"):
        if shutil.which(program) is None:
            print(f"{program} is not installed on {socket.gethostname()}: apt install openmpi-bin", file=sys.stderr)
            return NO_MPI
    return lead(sys.argv[1:]) if os.environ["LOOPLINE_RANK"] == "0" else follow()


def lead(command: list[str]) -> int:
    """Run mpirun, once all other members are here."""
    nodes, (host, port) = int(os.environ["LOOPLINE_NODES"]), rendezvous()
    members: dict[str, socket.socket] = {}
    with socket.create_server((host, port), backlog=nodes) as server:
        while len(members) < nodes - 1:
            member, _ = server.accept()
            found = greeted(member)
            if found is not None:
                members[found] = member
    threading.Thread(target=serve_agents, args=(members,), daemon=True).start()
    wait_for_socket()
    hosts = ",".join([f"{socket.gethostname()}:1", *(f"{name_of(rank)}:1" for rank in sorted(members, key=int))])
    agent = f"{sys.executable} {Path(__file__).resolve()} {AGENT}"
    options = [
        "--host",
        hosts,
        "--mca",
        "plm_rsh_agent",
        agent,
        "--mca",
        "plm_rsh_no_tree_spawn",
        "1",
        "--leave-session-attached",
    ]
    over_tcp = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
    return subprocess.call(
        ["mpirun", "-n", str(nodes), *options, *over_tcp, *IN_OWN_FOLDER, *command], env=environment()
    )


def greeted(member: socket.socket) -> str | None:
    """Return the rank of a member that says the secret; None for anybody else."""
    said = member.makefile("r").readline().split()
    if len(said) == 2 and hmac.compare_digest(said[1], os.environ["LOOPLINE_GANG_SECRET"]):
        return said[0]
    member.close()
    return None


def serve_agents(members: dict[str, socket.socket]) -> None:
    """Hand each launch agent's command line to the member that it names."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(SOCKET)
        server.listen(len(members))
        while True:
            agent, _ = server.accept()
            with agent, agent.makefile("r") as said:
                wish = json.loads(said.readline())
                members[wish["host"].removeprefix("rank-")].sendall(json.dumps(wish["command"]).encode() + b"\n")
                agent.sendall(b"k")


def ask_for_daemon(host: str, command: list[str]) -> int:
    """Be mpirun's launch agent, as ssh is otherwise: pass the daemon's command line on to the member of a host."""
    with socket.socket(socket.AF_UNIX) as leader:
        leader.connect(SOCKET)
        leader.sendall(json.dumps({"host": host, "command": command}).encode() + b"\n")
        return 0 if leader.recv(1) else UNKNOWN


def follow() -> int:
    """Wait for the daemon's command line, and run it until mpirun is over."""
    host, port = rendezvous()
    while True:
        try:
            leader = socket.create_connection((host, port))
            break
        except OSError:
            time.sleep(0.05)
    leader.sendall(f"{os.environ['LOOPLINE_RANK']} {os.environ['LOOPLINE_GANG_SECRET']}\n".encode())
    line = leader.makefile("r").readline()
    if not line:
        print("rank 0 ended before it started an MPI daemon here", file=sys.stderr)
        return LEFT_ALONE
    return subprocess.call(["sh", "-c", " ".join(json.loads(line))], env=environment())


def rendezvous() -> tuple[str, int]:
    host, _, port = os.environ["LOOPLINE_RENDEZVOUS"].rpartition(":")
    return host, int(port)


def name_of(rank: str) -> str:
    return f"rank-{rank}"


def wait_for_socket() -> None:
    while not Path(SOCKET).exists():
        time.sleep(0.01)


def environment() -> dict[str, str]:
    """Return the environment for Open MPI: its files go into the member's own folder."""
    here = str(Path.cwd())
    own = {"TMPDIR": here, "OMPI_MCA_orte_tmpdir_base": here, FOLDER: here}
    if os.geteuid() == 0:
        own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **own}


if __name__ == "__main__":
    sys.exit(main())
