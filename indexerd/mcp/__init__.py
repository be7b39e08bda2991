"""The MCP server: each tool is a method of the daemon, rendered for a model."""
