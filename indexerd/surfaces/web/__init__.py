"""The web view: a process of its own on loopback, a client of the daemon's socket."""
