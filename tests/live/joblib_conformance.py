"""joblib's own tests of parallel backends (joblib/test/test_parallel.py), with "loopline" in place of "loky".

Usage: LOOPLINE_MASTER=URL [LOOPLINE_TOKEN=...] [TMPDIR=FOLDER] python joblib_conformance.py [pytest options]
Needs joblib and pytest here and on the workers, and a grid with at least 2 slots. In one test, calls connect to a
Manager of this program through a socket in TMPDIR: workers with a sandbox must show that folder (``--sandbox-show
FOLDER``).
Runs joblib's tests for all backends; prints failed tests, then a verdict line.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import joblib.test
import pytest

import loopline.joblib

HEAD = """
import loopline.joblib as _loopline
_loopline.register()  # in loky's processes, too, which import this module
import multiprocessing as _multiprocessing
_multiprocessing.current_process().authkey = b"joblib conformance"  # for the Manager's proxies, on workers too
"""
source = (Path(joblib.test.__file__).parent / "test_parallel.py").read_text()
source = re.sub(r"^PROCESS_BACKENDS = .*$", 'PROCESS_BACKENDS = ["loopline"]', source, flags=re.M)
source = re.sub(r"^PARALLEL_BACKENDS = .*$", 'PARALLEL_BACKENDS = ["loopline"]', source, flags=re.M)
source = re.sub(r"^(ALL_VALID_BACKENDS = .*)$", r'ALL_VALID_BACKENDS = ["loopline"]', source, flags=re.M)


loopline.joblib.register()  # before the tests are collected: some are parametrised by all registered backends


class Count:
    passed, failed = 0, []

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid.split("::")[-1])
        elif report.when == "call" and report.passed:
            Count.passed += 1


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "test_parallel_on_grid.py"
    file.write_text(source + HEAD)
    os.chdir(folder)
    count = Count()
    pytest.main(
        ["-v", "-k", "loopline", "--timeout=45", "-p", "no:cacheprovider", "--tb=short", *sys.argv[1:], str(file)],
        plugins=[count],
    )
is_good = count.passed > 0 and not count.failed
print(f"joblib conformance: {'PASS' if is_good else 'FAIL'}: {count.passed} pass, {len(count.failed)} fail")
for name in count.failed:
    print("  fails:", name)
sys.stdout.flush()
os._exit(not is_good)
