"""A grid stays sound under faults, for each feature, and the campaign finds planted bugs.

`make test-campaigns SEED=N` repeats the run of a day; `-s` shows its progress.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from loopline_worker.launch import sandbox
from tests.campaign import tried
from tests.faults.database import POSTGRES
from tests.faults.driver import Campaign, Feature
from tests.faults.features import FEATURES, drawn_together
from tests.faults.plain import PLAIN
from tests.faults.standby import STANDBY
from tests.faults.walls import SANDBOX
from tests.store.postgres import or_skip, restartable_postgres

LONG = [pytest.mark.campaign, pytest.mark.timeout(1500)]
SHORT = ("gangs", "peers", "buckets", "standby", "checkpoints", "resources", "sleep")
"""Features with a short campaign in `make test-full`."""
FAULTS = 40
MOST_FAULTS = tried(20, 100)
HUNTS = 4
"""Seeds to try for a bug that shows only with certain timings."""
DRAWS = 2
"""Sets of compatible features drawn by a seed."""


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of the day, the same as in the rest of the long run."""
    given = request.config.getoption("--hypothesis-seed")
    return int(given) if given and given != "random" else 1


def with_plain(name: str) -> list[Feature]:
    """Return a feature with the faults of a plain grid; skip the campaign if the feature is unavailable."""
    return had([PLAIN] if name == PLAIN.name else [PLAIN, FEATURES[name]])


def had(features: list[Feature]) -> list[Feature]:
    if SANDBOX in features and (reason := sandbox.obstacle()):
        pytest.skip(reason)
    if POSTGRES in features or STANDBY in features:
        with or_skip(restartable_postgres()):
            pass
    return features


@pytest.mark.timeout(600)
async def test_plain_grid_survives_a_few_faults(tmp_path: Path) -> None:
    report = await Campaign(tmp_path, [PLAIN], 1, faults=4).run()
    assert not report.findings


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in SHORT else LONG) for name in FEATURES])
@pytest.mark.timeout(1500)
async def test_feature_survives_its_faults(name: str, seed: int, tmp_path: Path) -> None:
    report = await Campaign(tmp_path, with_plain(name), seed, faults=MOST_FAULTS).run()
    assert not report.findings


@pytest.mark.parametrize("draw", [pytest.param(draw, marks=LONG) for draw in range(DRAWS)])
async def test_features_survive_their_faults_together(draw: int, seed: int, tmp_path: Path) -> None:
    features = had(drawn_together(Random(f"{seed} together {draw}")))
    report = await Campaign(tmp_path, features, seed + draw, faults=FAULTS).run()
    assert not report.findings


@pytest.mark.parametrize(
    ("name", "bug"), [pytest.param(name, bug, marks=LONG) for name, one in FEATURES.items() for bug in one.bugs]
)
async def test_planted_bug_is_found(name: str, bug: str, seed: int, tmp_path: Path) -> None:
    said = list[str]()
    for hunt in range(HUNTS):
        folder = tmp_path / str(hunt)
        folder.mkdir()
        report = await Campaign(folder, with_plain(name), seed + hunt, faults=FAULTS, bug=bug).run()
        said += report.findings
        if any(FEATURES[name].bugs[bug] in finding for finding in said):
            return
    raise AssertionError(f"nobody said {FEATURES[name].bugs[bug]!r}: {said}")
