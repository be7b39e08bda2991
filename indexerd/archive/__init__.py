"""The archive: compressed copies of session files, in case their agents delete them."""
