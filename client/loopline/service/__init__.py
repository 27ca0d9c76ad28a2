"""A worker as a service: of systemd, of launchd, of the Task Scheduler of Windows. ``templates/`` has their files."""
