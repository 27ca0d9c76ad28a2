"""The environments of this worker: which it can provide, and how an attempt comes by its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_shared.model import Outcome
from loopline_shared.protocol.software import IMAGE, PACKAGES
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts import scratch
from loopline_worker.attempts.agent_wing import AgentWing, AttemptPart
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.environments.build import Build, size_of
from loopline_worker.environments.build_error import BuildError
from loopline_worker.environments.environment import Environment
from loopline_worker.environments.image_tool import ImageTool
from loopline_worker.environments.package_maker import PackageMaker
from loopline_worker.environments.recipe import Recipe, Recipes
from loopline_worker.environments.store import EnvironmentStore
from loopline_worker.environments.uv import Uv
from loopline_worker.files.staging import StagingError
from loopline_worker.launch.interface import Job

REMEMBERED_S = 30.0
"""Time before a failed build is tried again. After a failure of this computer, its slot waits as long before the task
is given back, so that the task does not return at once."""
MOST_TRIES = 3
"""Builds that fail one after the other for this computer's sake. Then tasks fail, for others may be no better."""


@dataclass(slots=True)
class Abilities:
    """Abilities of this computer: packages by uv, images by a tool."""

    uv: Uv | None = None
    images: ImageTool | None = None

    def words(self, own_version: str) -> tuple[str, ...]:
        """Return the words that the worker reports (protocol/software.py)."""
        versions = sorted({own_version, *self.uv.pythons}) if self.uv else []
        packages = [PACKAGES, *(f"{PACKAGES}{version}" for version in versions)] if self.uv else []
        return (*packages, *([IMAGE] if self.images else []))


@dataclass(slots=True)
class _Failure:
    error: BuildError
    tries: int = 1
    until: float = field(default_factory=lambda: time.monotonic() + REMEMBERED_S)


class Environments(AgentWing):
    """The wing that provides environments: the stored ones at once, others once they are built."""

    concerns = ("software", "function")

    def __init__(
        self,
        abilities: Abilities,
        recipes: Recipes,
        store: EnvironmentStore,
        scratch_folder: Path,
        make_maker: Callable[[Uv], PackageMaker],
    ) -> None:
        self._abilities = abilities
        self._recipes = recipes
        self._store = store
        self._scratch_folder = scratch_folder
        self._make_maker = make_maker
        self._builds: dict[str, Build] = {}
        self._failures: dict[str, _Failure] = {}
        self._past_cpu_s = 0.0  # of builds that have ended
        self._provisions: set[Provision] = set()  # of attempts in hand
        store.in_use = lambda: {one.key for one in self._provisions}
        self._retrying: dict[int, str] = {}  # by job: why its tasks wait here to be given back

    @property
    def preparing(self) -> tuple[tuple[int, str], ...]:
        """The jobs whose tasks wait here for software, and the progress of their builds."""
        if not self._builds and not self._retrying:
            return ()
        building = {job: build.words for build in self._builds.values() for job in build.jobs}
        return tuple({**building, **self._retrying}.items())

    def report(self, draft: DraftReport) -> None:
        """Add the progress of builds, while attempts have slots here."""
        if draft.held and (preparing := self.preparing):
            draft.load = replace(draft.load, preparing=preparing)

    def cpu_s(self) -> float:
        """Return the CPU seconds of all builds since the agent started."""
        return self._past_cpu_s + sum(build.cpu_s for build in self._builds.values())

    def prepare(self, run: Run, job: Job) -> Provision | None:
        """Return the provision of a run's software; None if it needs none."""
        try:
            recipe, obstacle = self._recipes.recipe_of(run), ""
        except LooplineError as error:
            recipe, obstacle = None, error.message
        if recipe is None and not obstacle:
            return None
        provision = Provision(self, recipe, run.attempt.job, obstacle)
        self._provisions.add(provision)
        if not provision.apply(job):
            job.makes_folder = False
        return provision

    def release(self, provision: Provision) -> None:
        """Note that an attempt no longer needs its environment."""
        self._provisions.discard(provision)

    def apply(self, recipe: Recipe, job: Job) -> bool:
        """Have a job run in its environment, if that is complete. False if it is not here."""
        environment = self._store.find(recipe.key)
        if environment:
            environment.apply(job)
        return environment is not None

    async def obtain(self, recipe: Recipe, who: Provision, job: int) -> None:
        """Wait until the environment is complete. Raises StagingError if it cannot be."""
        try:
            await self._obtained(recipe, who, job)
        except OSError as error:
            raise StagingError(Outcome.GIVEN_BACK, f"its environment cannot be made here: {error}") from None
        except BuildError as error:
            reason = f"its environment cannot be made{'' if error.is_users else ' here'}: {error}"
            failure = self._failures.get(recipe.key)
            if error.is_users or (failure and failure.tries >= MOST_TRIES):
                raise StagingError(Outcome.FAILED, reason) from None
            await self._wait_before_return(failure, job, reason)
            raise StagingError(Outcome.GIVEN_BACK, reason) from None

    def make_room(self, wanted_bytes: int) -> None:
        """Remove unused environments until ``wanted_bytes`` are free."""
        if wanted_bytes > 0:
            self._store.make_room(wanted_bytes)

    def freeze(self, recipe: Recipe, who: object, is_frozen: bool) -> None:
        """Freeze a build if all tasks that wait for it are frozen, else thaw it."""
        if build := self._builds.get(recipe.key):
            build.freeze(who, is_frozen)

    async def _obtained(self, recipe: Recipe, who: Provision, job: int) -> None:
        failure = self._failures.get(recipe.key)
        if failure and time.monotonic() < failure.until:
            raise failure.error
        while (build := self._builds.get(recipe.key)) and build.is_ending:
            await build.gone()
        if self._store.find(recipe.key):
            return
        build = build or self._start(recipe)
        waiting = asyncio.ensure_future(build.wait(who, job, who.is_frozen))
        await asyncio.sleep(0)
        self.agent.speak()
        await waiting

    def _start(self, recipe: Recipe) -> Build:
        self.is_awake = True
        folder = self._store.folder / recipe.key
        maker: ImageTool | PackageMaker
        if recipe.image:
            assert self._abilities.images
            maker, what = self._abilities.images.another(self._scratch_folder), f"fetches the image {recipe.image}"
        else:
            assert self._abilities.uv
            maker, what = self._make_maker(self._abilities.uv), "builds an environment of Python packages"
        build = self._builds[recipe.key] = Build(what[:200], folder, self._store.limit_bytes, maker)
        build.start(lambda: self._make(recipe, folder, maker))
        return build

    async def _make(self, recipe: Recipe, folder: Path, maker: ImageTool | PackageMaker) -> Environment:
        try:
            await asyncio.to_thread(scratch.make, folder)
            variables = await maker.make(recipe, folder)
            size_bytes = await asyncio.to_thread(size_of, folder)
            environment = Environment(folder, size_bytes, bool(recipe.image), variables)
            environment.write()
            folder.chmod(0o755)  # tasks may have users of their own; parent folders keep other users out
            self._store.add(environment)
            self._failures.pop(recipe.key, None)
        except BaseException as error:
            if isinstance(error, BuildError):
                before = self._failures.get(recipe.key)
                self._failures[recipe.key] = _Failure(error, before.tries + 1 if before else 1)
            await asyncio.shield(asyncio.to_thread(scratch.remove, folder))
            raise
        finally:
            self._past_cpu_s += self._builds.pop(recipe.key).cpu_s
        return environment

    async def _wait_before_return(self, failure: _Failure | None, job: int, reason: str) -> None:
        left_s = failure.until - time.monotonic() if failure else 0.0
        if left_s > 0:
            self._retrying[job] = f"waits: {reason}; its tasks are given back after {REMEMBERED_S:g} s"[:500]
            self.agent.speak()
            try:
                await asyncio.sleep(left_s)
            finally:
                self._retrying.pop(job, None)


class Provision(AttemptPart):
    """Provides the software of one attempt."""

    prepares = True

    def __init__(self, environments: Environments, recipe: Recipe | None, job: int, obstacle: str = "") -> None:
        self._environments = environments
        self._recipe = recipe
        self._job = job
        self._obstacle = obstacle
        self.is_frozen = False  # or is to be, once it is built

    @property
    def key(self) -> str:
        """The key of its environment."""
        return self._recipe.key if self._recipe else ""

    def apply(self, job: Job) -> bool:
        """Have the job run in its environment, if that is complete; False if it is not."""
        return self._recipe is not None and self._environments.apply(self._recipe, job)

    async def prepare(self, job: Job) -> None:
        """Wait for the environment, and have the job run in it. Raises StagingError."""
        if self._recipe is None:
            raise StagingError(Outcome.GIVEN_BACK, self._obstacle)
        while not self.apply(job):
            await self._environments.obtain(self._recipe, self, self._job)

    def after_end(self) -> None:
        """Let the environment go, if space is short."""
        self._environments.release(self)

    def on_frozen(self, is_frozen: bool) -> None:
        """Freeze or thaw its build, even before it begins."""
        self.is_frozen = is_frozen
        if self._recipe:
            self._environments.freeze(self._recipe, self, is_frozen)
