"""How a program talks to an engine: a blocking client that imports no more than it needs."""
