"""The pure core: bytes, values and `now` in; decisions and texts out."""
