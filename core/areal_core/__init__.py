"""The kernel: hook specs, plugin manager, spec, pipeline, workers. It never imports torch."""

API_VERSION = 1
"""Version of the plugin API; a descriptor of another one is refused (state: API mismatch)."""

ENTRY_POINT_GROUP = "areal_plugins"
