"""Processes that compute: the wire between them, the services they run, and their handles."""
