"""The HTTP server: models that other programs, and people, ask for translations."""
