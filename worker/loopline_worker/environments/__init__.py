"""Environments: the software that tasks bring along, provided once on this computer for all tasks that name the same.

An environment is a folder that tasks may read and not change. Packages are installed there by uv, in a sandbox, as
the user that tasks run as; where that is not the agent's, a copy belongs to the agent. An image is unpacked there by
podman, and tasks have it in place of the computer's own system. The folder's name is a hash of its recipe, so that
equal jobs share it and others do not.
"""
