"""The features of a campaign, by name."""

from __future__ import annotations

from tests.faults.driver import Feature
from tests.faults.plain import PLAIN

FEATURES: dict[str, Feature] = {feature.name: feature for feature in (PLAIN,)}
