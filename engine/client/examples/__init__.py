"""Programs to begin from, each run by a test: `python -m engine.client.examples.agent`."""
