"""The socket's protocol: JSON-RPC lines, methods and their params, limits."""
