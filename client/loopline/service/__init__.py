"""A worker as a service: of systemd, of launchd, of Windows' Task Scheduler. ``templates/`` has their files."""
