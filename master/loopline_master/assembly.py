"""The parts of the master: makes them and connects them."""

from __future__ import annotations

import asyncio
import logging
import time

from loopline_master.admission.busy_time import BusyTime
from loopline_master.background import Background
from loopline_master.certificates.encryption import Encryption
from loopline_master.certificates.job_secrets import JobSecrets
from loopline_master.certificates.worker_keys import WorkerKeys
from loopline_master.change_feed import Subscriptions
from loopline_master.commands.limit_commands import LimitCommands
from loopline_master.commands.wake_commands import WakeCommands
from loopline_master.core.events import MasterStarted
from loopline_master.core.scheduler import Scheduler
from loopline_master.engine import Clock, Engine
from loopline_master.files.blobs import Blobs
from loopline_master.files.bucket import Bucket
from loopline_master.files.bucket_store import BucketStore
from loopline_master.files.file_store import FileStore, FolderStore
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.files.retained import RetainedFiles
from loopline_master.files.retention import Retention
from loopline_master.files.row_files import RowFiles
from loopline_master.files.upload_turns import UploadTurns
from loopline_master.files.user_files import UserFiles
from loopline_master.files.whole_files import WholeFiles
from loopline_master.forecaster import Forecaster
from loopline_master.gang_secrets import GangSecrets
from loopline_master.history.forgetting import Forgetting
from loopline_master.history.summing import Summing
from loopline_master.http.auth import AuditRecorder, Auth
from loopline_master.http.live.client_link import ClientLinks
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.live.output_search import OutputSearch
from loopline_master.http.live.shared_answers import SharedAnswers
from loopline_master.http.live.stored_results import StoredResults
from loopline_master.http.live.streams import FollowedResults
from loopline_master.http.live.task_output import TaskOutput
from loopline_master.http.operations import Parts
from loopline_master.http.token_files import job_key, make_keys, peer_key, session_key
from loopline_master.http.web_app import api_document
from loopline_master.links import WorkerLinks
from loopline_master.log_bound import LogBound
from loopline_master.metrics import Growth, InvariantSampler, Metrics, step_watcher
from loopline_master.notify.notifier import Notifier
from loopline_master.notify.webhook import Webhooks, WebhookSecrets
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.live_network import LiveNetwork
from loopline_master.peers.measurement import Measurement
from loopline_master.peers.piece_lists import PieceLists
from loopline_master.settings import Limits, MasterSettings
from loopline_master.store import Store
from loopline_master.submissions.dry_run import DryRuns
from loopline_master.submissions.ended_jobs import Retries
from loopline_master.submissions.idempotency import KeyLock
from loopline_master.submissions.submissions import Submissions
from loopline_master.task_progress import TaskProgress
from loopline_master.transfers.solver import best_solver
from loopline_master.transfers.solver_thread import SolverThread
from loopline_shared.protocol.worker_link import Assign

log = logging.getLogger(__name__)


async def assemble(settings: MasterSettings, store: Store) -> Parts:
    """Make the parts. The engine then has taken its first step, which starts the scheduler from the stored rows."""
    if ahead_s := await store.set_clock_right(time.time()):
        log.warning("this master's clock was %.1f h ahead; times that had not come are moved", ahead_s / 3600)
    kept = await asyncio.to_thread(_file_store, settings)  # first, since it may be unreachable
    keep_log_s = settings.keep_log_days * 86400.0
    await store.begin_log(keep_log_s, time.time())
    snapshot, _ = await asyncio.gather(store.snapshot(), asyncio.to_thread(make_keys, settings))
    scheduler, metrics, clock = Scheduler(snapshot), Metrics(), Clock(after=snapshot.grid.now)
    sampler = InvariantSampler(scheduler, metrics)
    solver = SolverThread(best_solver(), metrics.observe_plan)
    engine = Engine(
        scheduler,
        store,
        clock,
        max_inbox=settings.limits.max_inbox,
        after_step=step_watcher(metrics, sampler, scheduler.state),
        plan=solver.start,
    )
    solver.post = engine.post
    engine.post(MasterStarted(settings.scheduler))
    await engine.turn()
    parts = Parts(settings, settings.limits, store, Encryption(settings), JobSecrets(job_key(settings)))
    parts.add(scheduler, metrics, sampler, clock, engine, engine.changes, solver, Background(metrics))
    parts.add(now := RemovalClock(snapshot.grid.now))
    parts.add(LogBound(engine, store, keep_log_s, now), Growth(store, settings.data_dir))
    _add_files(parts, kept)
    _add_submissions(parts)
    parts.add(BusyTime(), TaskProgress())
    _add_worker_links(parts)
    _add_streams(parts)
    _add_notifier(parts)
    parts.add(Forecaster(scheduler, store.eta_records, clock, parts[TaskProgress]))
    parts.add(Forgetting(engine, scheduler, store, settings, parts[Retention], encryption=parts[Encryption], now=now))
    parts.add(Summing(store), LimitCommands(settings.limit_commands, engine, scheduler))
    parts.add(wakes := WakeCommands(settings.wake_command))
    engine.changes.add_listener(wakes, *wakes.kinds)
    parts.add(api_document())
    return parts


def _file_store(settings: MasterSettings) -> FileStore:
    """Return where files are kept. Raises LooplineError if that is a bucket which cannot be used."""
    folder = FolderStore(settings.files_folder)
    if not settings.files:
        return folder
    return BucketStore(
        Bucket(settings.files),
        folder,
        grace_s=settings.file_grace_s,
        reserve_bytes=settings.limits.disk_reserve_bytes,
    )


def _add_files(parts: Parts, kept: FileStore) -> None:
    """Add the store of files, and its readers."""
    settings, limits, store = parts[MasterSettings], parts[Limits], parts[Store]
    blobs = Blobs(
        kept,
        limits.max_file_bytes,
        limits.disk_reserve_bytes,
        limits.max_unfinished_uploads,
    )
    users = UserFiles(store, limits.user_file_bytes)
    whole = WholeFiles(blobs)
    parts.add(
        blobs,
        UploadTurns(settings.checkpoint_bytes_s),
        whole,
        users,
        RowFiles(blobs, parts[MasterSettings].scheduler.max_tasks),
        RetainedFiles(store, blobs, whole, settings.failed_outputs_days),
        Retention(store, blobs, settings, users, parts[RemovalClock]),
    )


def _add_submissions(parts: Parts) -> None:
    """Add the way of jobs into the grid."""
    store, engine, lock = parts[Store], parts[Engine], KeyLock()
    submissions = Submissions(
        store,
        engine,
        parts[Scheduler],
        blobs=parts[Blobs],
        rows=parts[RowFiles],
        lock=lock,
        notify_commands=parts[MasterSettings].notify_commands,
        secrets=parts[JobSecrets],
        folder=parts[MasterSettings].data_dir,
        reserve_bytes=parts[Limits].disk_reserve_bytes // 2,  # the other half is left by files
        max_posted=parts[Limits].max_inbox,
    )
    retries = Retries(store, engine, files=parts[RetainedFiles], retention=parts[Retention], lock=lock)
    parts.add(submissions, retries, DryRuns(parts[Scheduler], parts[Store], parts[Blobs], parts[RowFiles]))


def _add_worker_links(parts: Parts) -> None:
    """Add the links of workers, and the network that their Reports show."""
    settings, engine, encryption = parts[MasterSettings], parts[Engine], parts[Encryption]
    secrets, jobs_own = GangSecrets(session_key(settings)), parts[JobSecrets]

    async def complete(assign: Assign) -> Assign:
        return jobs_own.fill_in(secrets.fill_in(await parts[RowFiles].complete(assign)))

    exchange = Exchange(settings, peer_key(settings), parts[Metrics], lambda: encryption.is_on)
    network = LiveNetwork(settings, engine, parts[Scheduler], exchange)
    links = WorkerLinks(
        engine,
        settings,
        complete,
        blobs=parts[Blobs],
        exchange=exchange,
        keys=WorkerKeys(encryption, parts[Store].tokens),
        busy_time=parts[BusyTime],
        progress=parts[TaskProgress],
        life=parts[Store].life,
    )
    parts.add(exchange, network, Measurement(network, exchange, parts[Scheduler], links.probe))
    parts.add(PieceLists(parts[Blobs]), links)


def _add_streams(parts: Parts) -> None:
    """Add the links of clients, and the parts that send responses without end."""
    store, engine, blobs, limits = parts[Store], parts[Engine], parts[Blobs], parts[Limits]
    subscriptions, streams = Subscriptions(), OpenStreams(limits.max_listeners, limits.user_listeners)
    engine.changes.add_listener(subscriptions)
    parts.add(SharedAnswers(engine.changes))
    stored = StoredResults(store, blobs, parts[RowFiles])
    followed = FollowedResults(stored, subscriptions, parts[Scheduler])
    output = TaskOutput(
        store,
        blobs,
        files=parts[RetainedFiles],
        links=parts[WorkerLinks],
        changes=engine.changes,
        streams=streams,
    )
    parts.add(OutputSearch(store, parts[RetainedFiles]))
    auth = Auth(store.tokens, session_key(parts[MasterSettings]), streams.end, required=parts[MasterSettings].tokens)
    engine.changes.add_listener(auth)
    clients = ClientLinks(
        auth,
        parts[Submissions],
        store=store,
        subscriptions=subscriptions,
        scheduler=parts[Scheduler],
        busy_time=parts[BusyTime],
        audit=(audit := AuditRecorder(store, parts[MasterSettings], parts[RemovalClock])),
    )
    parts.add(subscriptions, streams, stored, followed, output, auth, audit, clients)


def _add_notifier(parts: Parts) -> None:
    settings, secrets = parts[MasterSettings], WebhookSecrets(parts[MasterSettings].data_dir)
    webhooks = Webhooks(secrets, settings.webhook_hosts)
    parts.add(
        secrets,
        Notifier(parts[Store], parts[Clock], webhooks=webhooks, commands=settings.notify_commands),
    )
