"""For testing plugins alone, on a laptop: mocks of every component, and the conformance kit."""
