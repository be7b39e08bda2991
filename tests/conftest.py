"""What every test stands on."""

from __future__ import annotations

import signal

from hypothesis import settings

# Timings are measured in bench/, never asserted here: a busy machine is no failure.
settings.register_profile("indexerd", deadline=None)
settings.load_profile("indexerd")

# Started in the background, a shell has us ignore SIGINT, and our children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
