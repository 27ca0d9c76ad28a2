"""The paths that a task in a sandbox of either kind sees of its computer: everything else is hidden."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
"""Installed programs and their libraries. What is a link there, as /bin often is, stays one."""
_BESIDE = ("/var/lib/texmf", "/var/cache/fontconfig", "/sys/devices/system")
_OF_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "os-release", "debian_version", "lsb-release"),
    *("passwd", "group", "nsswitch.conf", "hosts", "hostname", "host.conf", "gai.conf", "resolv.conf"),
    *(
        "protocols",
        "services",
        "networks",
        "rpc",
        "krb5.conf",
        "localtime",
        "timezone",
        "locale.alias",
        "locale.conf",
    ),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls", "pki/ca-trust", "crypto-policies", "mime.types"),
    *("fonts", "terminfo", "inputrc", "magic", "papersize", "shells", "bash.bashrc", "profile", "profile.d"),
    *("R", "perl", "python3", "java", "matplotlibrc", "texmf", "ImageMagick-6", "ImageMagick-7", "octave.conf"),
    *("openmpi", "mpich", "libblas.so.3", "OpenCL", "vulkan", "glvnd", "gnuplot", "environment-modules", "lmod"),
)
"""What programs look up in /etc: names, certificates, fonts, their own settings. Nothing else of it is seen."""
LIVE = ("/etc/hosts", "/etc/resolv.conf", "/etc/ssl/certs", "/etc/alternatives")
"""Of that, what changes as a computer changes its network, and hundreds of links each, which take long to copy."""


@dataclass(frozen=True, slots=True)
class Visible:
    """Paths that tasks may read besides their own: of two that are within each other, the inner one counts.

    ``shows``: what they may read. ``hides``: what they may not, wherever it is. ``shares``: folders that jobs may run
    in and write to, if they ask for it.
    """

    shows: tuple[Path, ...] = ()
    hides: tuple[Path, ...] = ()
    shares: tuple[str, ...] = ()

    def system(self) -> list[str]:
        """Return the paths of the system that are there."""
        named = (*SYSTEM, *(f"/etc/{name}" for name in _OF_ETC), *_BESIDE)
        return [path for path in named if os.path.exists(path)]  # noqa: PTH110

    def hidden(self) -> list[Path]:
        """Return what is hidden of that which would be seen otherwise, as it is now."""
        seen = [Path(path) for path in (*SYSTEM, *_BESIDE, *(f"/etc/{name}" for name in _OF_ETC))]
        seen = [Path(os.path.realpath(path)) for path in (*seen, *self.shows)]
        hidden = {Path(os.path.realpath(path)) for path in self.hides}
        return sorted(path for path in hidden if any(path.is_relative_to(one) for one in seen))

    def shared(self, folder: str) -> str:
        """Return the resolved working folder of a job, if it is shared here."""
        real = Path(os.path.realpath(folder)) if folder else None
        is_shared = real is not None and any(real.is_relative_to(os.path.realpath(one)) for one in self.shares)
        return str(real) if is_shared else ""


def copy_etc(folder: Path) -> Path | None:
    """Copy what tasks see of /etc, for one mount in place of forty, which take longer than a short task.

    Return the folder; None if the copy fails. It stays as it is until the worker starts again, but for LIVE, which is
    mounted over what is empty.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for name in _OF_ETC:
            source, target = Path("/etc", name), folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            for made in target.relative_to(folder).parents:
                (folder / made).chmod(0o755)  # tasks may have another user
            if str(source) in LIVE and source.exists():
                target.mkdir() if source.is_dir() else target.touch()
            elif source.is_dir() and not source.is_symlink():
                with suppress(shutil.Error):  # files that this user may not read: no task could either
                    shutil.copytree(source, target, symlinks=True)
            elif source.is_symlink() or os.access(source, os.R_OK):
                shutil.copy2(source, target, follow_symlinks=False)
    except OSError:
        return None
    return folder


def _packages() -> list[Path]:
    """Return the folders that the agent's own Python imports from, except for its working folder."""
    return [Path(folder) for folder in sys.path[0 if sys.flags.safe_path else 1 :] if os.path.isdir(folder)]  # noqa: PTH112


def visible(shows: Iterable[Path] = (), hides: Iterable[Path] = (), shares: Sequence[str] = ()) -> Visible:
    """Return the paths that tasks see, including the agent's Python, which is often in a home."""
    pythons = [Path(sys.base_prefix), Path(sys.prefix)]
    others = [folder for folder in _packages() if not any(folder.is_relative_to(python) for python in pythons)]
    there = [folder.absolute() for folder in (*pythons, *others, *shows) if os.path.exists(folder)]  # noqa: PTH110
    return Visible(tuple(dict.fromkeys(there)), tuple(path.absolute() for path in hides), tuple(shares))
