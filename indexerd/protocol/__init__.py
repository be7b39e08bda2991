"""The socket's language: JSON-RPC lines, methods and their params, limits."""
