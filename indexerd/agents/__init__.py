"""One module per agent: where its sessions are, how a line is skimmed and read. Pure."""
