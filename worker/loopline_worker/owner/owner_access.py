"""Access of the owner of this computer to the agent: the page, and the socket for reporters of desktops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loopline_worker.owner.owner_monitor import OwnerMonitor
from loopline_worker.settings import WorkerSettings

if TYPE_CHECKING:
    from loopline_worker.owner.server import OwnerServer
    from loopline_worker.owner.session_server import SessionServer
    from loopline_worker.owner.state import OwnerControls


class OwnerAccess:
    """The servers that an owner uses. Their modules are imported only where they are open."""

    def __init__(self) -> None:
        self.page: OwnerServer | None = None
        self._session_server: SessionServer | None = None

    async def open(
        self, controls: OwnerControls, folder: Path, settings: WorkerSettings, monitor: OwnerMonitor
    ) -> None:
        """Open the page, and the socket if this worker is a service of the system. ``folder``: for the address."""
        from loopline_worker.owner import session_server
        from loopline_worker.owner.server import OwnerServer
        from loopline_worker.presence.session_reports import SessionReports

        self.page = OwnerServer(folder, controls, settings.owner_port)
        await self.page.open()
        if session_server.has_place(settings.owner_socket) and monitor.preferences.needs_presence:
            reports = SessionReports()
            monitor.use_reports(reports)
            self._session_server = session_server.SessionServer(
                settings.owner_socket, controls, reports, monitor, session_server.people_but_tasks(monitor.knows)
            )
            await self._session_server.open()

    async def close(self) -> None:
        """Close what is open."""
        if self.page:
            await self.page.close()
        if self._session_server:
            await self._session_server.close()
