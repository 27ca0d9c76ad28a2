"""A grid under faults stays sound, feature by feature, and the campaign that says so can find something.

`make test-campaigns SEED=N` tries a day again; with `-s` it tells what it does as it goes.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from loopline_worker.launch import sandbox
from tests.faults.database import POSTGRES
from tests.faults.driver import Campaign, Feature
from tests.faults.features import FEATURES, drawn_together
from tests.faults.plain import PLAIN
from tests.faults.standby import STANDBY
from tests.faults.walls import SANDBOX
from tests.store.postgres import or_skip, restartable_postgres

LONG = [pytest.mark.campaign, pytest.mark.timeout(1500)]
FAULTS = 40
HUNTS = 4
"""A bug that takes a coincidence is hunted by so many seeds."""
DRAWS = 2
"""So many sets of features that go together are drawn by a seed."""


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of the day, as the rest of the long run has it."""
    given = request.config.getoption("--hypothesis-seed")
    return int(given) if given and given != "random" else 1


def with_plain(name: str) -> list[Feature]:
    """Return a feature beside the faults that any grid must bear; the campaign skips where it cannot be had."""
    return had([PLAIN] if name == PLAIN.name else [PLAIN, FEATURES[name]])


def had(features: list[Feature]) -> list[Feature]:
    if SANDBOX in features and (reason := sandbox.obstacle()):
        pytest.skip(reason)
    if POSTGRES in features or STANDBY in features:
        with or_skip(restartable_postgres()):
            pass
    return features


async def test_a_plain_grid_bears_a_few_faults(tmp_path: Path) -> None:
    report = await Campaign(tmp_path, [PLAIN], 1, faults=4).run()
    assert not report.findings


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG) for name in FEATURES])
async def test_a_feature_bears_its_faults(name: str, seed: int, tmp_path: Path) -> None:
    report = await Campaign(tmp_path, with_plain(name), seed, faults=FAULTS).run()
    assert not report.findings


@pytest.mark.parametrize("draw", [pytest.param(draw, marks=LONG) for draw in range(DRAWS)])
async def test_features_bear_their_faults_together(draw: int, seed: int, tmp_path: Path) -> None:
    features = had(drawn_together(Random(f"{seed} together {draw}")))
    report = await Campaign(tmp_path, features, seed + draw, faults=FAULTS).run()
    assert not report.findings


@pytest.mark.parametrize(
    ("name", "bug"), [pytest.param(name, bug, marks=LONG) for name, one in FEATURES.items() for bug in one.bugs]
)
async def test_a_planted_bug_is_caught(name: str, bug: str, seed: int, tmp_path: Path) -> None:
    said = list[str]()
    for hunt in range(HUNTS):
        folder = tmp_path / str(hunt)
        folder.mkdir()
        report = await Campaign(folder, with_plain(name), seed + hunt, faults=FAULTS, bug=bug).run()
        said += report.findings
        if any(FEATURES[name].bugs[bug] in finding for finding in said):
            return
    raise AssertionError(f"nobody said {FEATURES[name].bugs[bug]!r}: {said}")
