"""The features of a campaign, by name."""

from __future__ import annotations

from tests.faults.database import POSTGRES
from tests.faults.driver import Feature
from tests.faults.encryption import TLS
from tests.faults.gangs import GANGS
from tests.faults.peers import PEERS
from tests.faults.plain import PLAIN
from tests.faults.standby import STANDBY
from tests.faults.walls import SANDBOX

FEATURES: dict[str, Feature] = {
    feature.name: feature for feature in (PLAIN, SANDBOX, TLS, POSTGRES, PEERS, GANGS, STANDBY)
}
