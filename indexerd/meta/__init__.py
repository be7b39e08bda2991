"""Meta files and their sidecars: what they hold, how they are read, who writes them."""
