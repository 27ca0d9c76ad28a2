"""The features of a campaign, by name, and which of them go together."""

from __future__ import annotations

from itertools import combinations
from random import Random

from tests.faults.checkpoints import CHECKPOINTS
from tests.faults.database import POSTGRES
from tests.faults.driver import Feature
from tests.faults.encryption import TLS
from tests.faults.gangs import GANGS
from tests.faults.object_storage import BUCKETS
from tests.faults.peers import PEERS
from tests.faults.plain import PLAIN
from tests.faults.resources import RESOURCES
from tests.faults.sleep.feature import SLEEP
from tests.faults.standby import STANDBY
from tests.faults.walls import SANDBOX

FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (PLAIN, SANDBOX, TLS, POSTGRES, PEERS, GANGS, BUCKETS, STANDBY, CHECKPOINTS, RESOURCES, SLEEP)
}

APART = (
    {SANDBOX.name, GANGS.name},  # tasks without a network cannot meet
    {SANDBOX.name, RESOURCES.name},  # nor share a lock
    {POSTGRES.name, STANDBY.name},  # each brings its server
    {SLEEP.name, STANDBY.name},  # its masters do not give wakes up soon
    {TLS.name, STANDBY.name},  # requests to the standby use plain HTTP
)


def drawn_together(chance: Random) -> list[Feature]:
    """Draw two or three compatible features, in addition to the faults of a plain grid."""
    names = [name for name in FEATURES if name != PLAIN.name]
    together = [
        some for count in (2, 3) for some in combinations(names, count) if not any(pair <= {*some} for pair in APART)
    ]
    return [PLAIN, *(FEATURES[name] for name in chance.choice(together))]
