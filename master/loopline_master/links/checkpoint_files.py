"""Checks that the files of a checkpoint are here before its row may name them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from loopline_master.files.blobs import Blobs
from loopline_shared.protocol import saved_state
from loopline_shared.protocol.worker_link import Report

log = logging.getLogger(__name__)


async def whole_checkpoints(blobs: Blobs, report: Report) -> Report:
    """Return the report with those checkpoints alone whose manifest and pieces are here, and are retained.

    Workers upload the files first. One that is not whole is left out, and the worker's next one takes its place.
    """
    told = report.checkpoints
    taken = told.taken if told else ()
    whole = await asyncio.to_thread(lambda: [one for one in taken if _is_whole(blobs, one.manifest)])
    for one in taken:
        if one not in whole:
            log.warning("a checkpoint of attempt %s is not kept: its files are not here", one.attempt)
    if told is None or len(whole) == len(taken):
        return report
    return replace(report, checkpoints=replace(told, taken=tuple(whole)))


def _is_whole(blobs: Blobs, manifest: str) -> bool:
    size_bytes, path = blobs.retain(manifest), blobs.find(manifest)
    if size_bytes is None or path is None or size_bytes > saved_state.MAX_MANIFEST_BYTES:
        return False
    try:
        pieces = saved_state.decode(path.read_bytes()).pieces()
    except (OSError, ValueError):
        return False
    return all(blobs.retain(piece) is not None for piece in pieces)
