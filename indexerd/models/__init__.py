"""Language models behind one protocol, with budget, breaker and attempts around them."""
