"""Grounds: what a planner places jobs on, such as a rack of nodes or the computers of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Planned(Protocol):
    """A job as a planner sees it: its number, and for how many steps of time its place is kept."""

    @property
    def number(self) -> int: ...
    @property
    def limit(self) -> int: ...


JobT = TypeVar("JobT", bound=Planned)
JobT_contra = TypeVar("JobT_contra", bound=Planned, contravariant=True)
PlaceT = TypeVar("PlaceT")
"""Where a job is placed."""
CellsT = TypeVar("CellsT")
"""What a job takes up there."""
CellsT_contra = TypeVar("CellsT_contra", contravariant=True)
PieceT = TypeVar("PieceT")
"""All that is taken during a piece of time."""


class Occupation(Protocol[PieceT, CellsT_contra]):
    """Arithmetic of what is taken. The caller takes only cells that are free, and frees only those that are taken."""

    @property
    def empty(self) -> PieceT:
        """The piece of time in which nothing is taken."""

    def occupy(self, piece: PieceT, cells: CellsT_contra) -> PieceT:
        """Return the piece with these cells taken, too."""

    def free(self, piece: PieceT, cells: CellsT_contra) -> PieceT:
        """Return the piece without these cells."""

    def releases(self, before: PieceT, after: PieceT) -> bool:
        """True if something is free in ``after`` that is taken in ``before``."""


class Ground(Occupation[PieceT, CellsT], Protocol[JobT_contra, PlaceT, PieceT, CellsT]):
    """Ground on which a job is placed while certain pieces of time last."""

    def place(self, pieces: Sequence[PieceT], job: JobT_contra) -> PlaceT | None:
        """Return the place at which the job fits throughout the pieces; None if there is none."""

    def cells(self, job: JobT_contra, place: PlaceT) -> CellsT:
        """Return what the job takes up at ``place``."""
