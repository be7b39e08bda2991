"""One frozen tree of settings, from defaults < file < environment, that knows each value's source.

Reading the file is the caller's business: here are bytes and a mapping of variables. What is read
in `parsing` is bounded, and what a pattern may cost is judged in `patterns`.
"""

from indexerd.settings.loading import Loaded, load, sound
from indexerd.settings.tree import (
    Agent,
    Agents,
    Budget,
    Digest,
    Index,
    Log,
    ModelLimits,
    OpenAIProvider,
    Price,
    Privacy,
    Provider,
    Providers,
    Query,
    Redact,
    References,
    Section,
    Settings,
    Watch,
    Web,
    listen_address,
)

__all__ = [
    "Agent",
    "Agents",
    "Budget",
    "Digest",
    "Index",
    "Loaded",
    "Log",
    "ModelLimits",
    "OpenAIProvider",
    "Price",
    "Privacy",
    "Provider",
    "Providers",
    "Query",
    "Redact",
    "References",
    "Section",
    "Settings",
    "Watch",
    "Web",
    "listen_address",
    "load",
    "sound",
]
