"""Explanations of why a job or a worker waits: a sentence for people and counted reasons for programs."""
