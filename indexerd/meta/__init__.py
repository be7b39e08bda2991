"""Meta files and sidecars: their contents, readers and the only writer."""
