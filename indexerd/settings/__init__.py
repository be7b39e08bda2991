"""One frozen tree of settings that knows where each value came from."""

from indexerd.settings.loading import Loaded, load, read_config, remember
from indexerd.settings.schema import (
    Agent,
    Agents,
    Budget,
    Digest,
    Index,
    ModelLimits,
    Price,
    Provider,
    Settings,
    Watch,
    listen_address,
)

__all__ = (
    "Agent", "Agents", "Budget", "Digest", "Index", "Loaded", "ModelLimits", "Price", "Provider",
    "Settings", "Watch", "listen_address", "load", "read_config", "remember",
)  # fmt: skip
