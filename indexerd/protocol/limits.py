"""Maximum lengths of texts in meta files and in rows."""

from __future__ import annotations

# What we write into a meta file, in characters; other programs' longer texts are cut when shown.
NAME_MAX = 120
DESCRIPTION_MAX = 1200
SUMMARY_MAX = 8000
TAG_MAX = 80
TAGS_MIN, TAGS_MAX = 3, 12
FIRST_MESSAGE_MAX = 200

# What a row shows.
PATHS_MAX = 500  # files
TAGS_SHOWN = 50
PATH_MAX = 4096  # characters; no path of a file system is longer
WORD_MAX = 128  # characters of an id, a time, the name of an agent or a tool
USE_MAX = 120  # characters of a notable use of a tool
WAITS_MAX = 3 * 86_400  # seconds after which a session waits for nobody any longer
READ_MAX = 20_000  # characters of any text that are processed, far more than any limit above
