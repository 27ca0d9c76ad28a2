"""Notifications of the end of jobs: webhooks and commands, sent from an outbox in the database."""
