"""The service: its life cycle, its methods, its socket, its log."""
