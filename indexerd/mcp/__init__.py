"""The MCP server: a tool is one method of the daemon, rendered for a model."""
