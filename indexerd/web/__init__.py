"""Sessions in a web browser, and exported as pages."""
