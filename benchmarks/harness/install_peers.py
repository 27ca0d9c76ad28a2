"""Install the competing programs into `.bench/`, beside the project: from PyPI and from Debian. Debian packages
(Redis for Celery, GNU parallel) are unpacked rather than installed, so that root rights are unnecessary.

    python benchmarks/harness/install_peers.py
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".bench"
OF_PYPI = ["distributed", "parsl", "huey", "celery", "redis", "hyperqueue"]
OF_DEBIAN = {
    "redis-server": ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"],
    "parallel": ["parallel"],
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    python = FOLDER / "bin" / "python"
    if not python.exists():
        print(f"a virtual environment in {FOLDER} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    print(f"from PyPI: {', '.join(OF_PYPI)} ...", flush=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *quiet, "--upgrade", *OF_PYPI], check=True)
    missing = [
        package for program, packages in OF_DEBIAN.items() if not shutil.which(program) for package in packages
    ]
    if missing and not _unpack(missing):
        print("no Redis or GNU parallel, so no rows that need them: install them as your system does it")
    print("installed; now: make bench")


def _unpack(packages: list[str]) -> bool:
    """Unpack Debian packages; False if the system or the packages are unsuitable."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return False
    print(f"from Debian: {', '.join(packages)} ...", flush=True)
    folder = FOLDER / "debian"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.deb"):
        old.unlink()
    if subprocess.call(["apt-get", "-qq", "download", *packages], cwd=folder, stderr=subprocess.DEVNULL):
        return False
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)
    return True


if __name__ == "__main__":
    main()
