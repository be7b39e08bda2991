"""Thin faces of the service."""
