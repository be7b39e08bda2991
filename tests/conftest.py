"""What every test stands on."""

from __future__ import annotations

from hypothesis import settings

# Timings are measured in bench/, never asserted here: a busy machine is no failure.
settings.register_profile("indexerd", deadline=None)
settings.load_profile("indexerd")
