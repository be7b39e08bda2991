"""Models behind one Protocol; each provider one file, the fake among them."""
