from hypothesis import HealthCheck, settings

# No test depends on time: a busy machine must not fail a property that holds.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", settings.get_profile("untimed"), max_examples=5000)
settings.load_profile("untimed")
