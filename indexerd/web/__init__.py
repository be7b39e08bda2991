"""The sessions in a browser, and as a page of their own."""
