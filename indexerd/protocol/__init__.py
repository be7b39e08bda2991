"""The socket's language: JSON-RPC lines, and the rows that answers are made of."""
