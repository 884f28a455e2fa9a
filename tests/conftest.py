"""What holds for every test."""

from hypothesis import HealthCheck, settings

# No test fails for being slow: the machine may be busy.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")
