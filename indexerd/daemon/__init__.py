"""The daemon: life cycle, session files, methods, socket, events."""
