"""How long the texts of a meta file may be: for whoever needs no more of it, and no pydantic."""

from __future__ import annotations

NAME_MAX = 120  # characters
DESCRIPTION_MAX = 1200
SUMMARY_MAX = 8000
TAG_MAX = 80
