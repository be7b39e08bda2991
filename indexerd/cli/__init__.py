"""The command line, a thin client of the daemon's methods."""
