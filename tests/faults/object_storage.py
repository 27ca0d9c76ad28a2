"""A grid with its files in a bucket, whose service refuses requests or is down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from unittest.mock import patch

from tests.faults.driver import Campaign, Fault, Feature
from tests.object_storage import BUCKET, ObjectStorage

REFUSED = 0.05
"""Share of requests refused while no fault is injected."""


class Service:
    """The storage service of a campaign, which can be stopped; it keeps its files."""

    def __init__(self, seed: int) -> None:
        self.storage = ObjectStorage(seed=seed)
        self._port = 0
        self._serving: AbstractContextManager[ObjectStorage]

    def begin(self) -> None:
        self.storage.refused = 0.0  # the bucket is created first
        self._serving = self.storage.serving(self._port)
        self._serving.__enter__()
        self._port = self.storage.port
        self.storage.refused = REFUSED

    def end(self) -> None:
        self._serving.__exit__(None, None, None)


SERVICES: dict[int, Service] = {}
"""The services, by the seed of their campaign."""


async def refuse_most(campaign: Campaign, _: str) -> None:
    storage = SERVICES[campaign.seed].storage
    storage.refused = 0.7
    await asyncio.sleep(campaign.chance.choice((1.0, 4.0)))  # the fault lasts
    storage.refused = REFUSED


async def take_away(campaign: Campaign, _: str) -> None:
    service = SERVICES[campaign.seed]
    await asyncio.to_thread(service.end)
    await asyncio.sleep(campaign.chance.choice((0.5, 4.0, 10.0)))  # the fault lasts
    await asyncio.to_thread(service.begin)


@asynccontextmanager
async def in_a_bucket(campaign: Campaign) -> AsyncIterator[None]:
    """Start a service for this campaign only."""
    service = SERVICES[campaign.seed] = Service(campaign.seed)
    await asyncio.to_thread(service.begin)
    campaign.master_options += ["--files", f"s3://{BUCKET}/grid"]
    campaign.targets["service"] = ["service"]
    try:
        with patch.dict(os.environ, service.storage.environment):
            yield
    finally:
        await asyncio.to_thread(service.end)


BUCKETS = Feature(
    "buckets",
    faults=(
        Fault("most requests to the bucket refused", refuse_most, "service"),
        Fault("the bucket's service away", take_away, "service"),
    ),
    bugs={"what_the_bucket_did_not_take_counts_as_kept": "brought"},
    around=in_a_bucket,
)
