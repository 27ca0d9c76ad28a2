"""The resources that a worker's token allows. Further ones are left out of its facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from loopline_shared.model import Facts, Resource


def allowed_part(facts: Facts, most: Mapping[str, int] | None) -> tuple[Facts, dict[str, int]]:
    """Return the facts with at most these units of each resource, and the units that were left out, by name.

    ``most`` None: all are allowed. Of GPUs the first ones stay.
    """
    if most is None or not facts.resources:
        return facts, {}
    allowed = tuple(_cut(facts.resources, most))
    if allowed == facts.resources:
        return facts, {}
    left_out = Counter({one.name: one.units for one in facts.resources})
    left_out.subtract({one.name: one.units for one in allowed})
    return replace(facts, resources=allowed), dict(+left_out)


def _cut(resources: tuple[Resource, ...], most: Mapping[str, int]) -> Iterator[Resource]:
    for resource in resources:
        units = min(resource.units, most.get(resource.name, 0))
        if units:
            yield replace(resource, units=units, gpus=resource.gpus[:units])
