"""Many requests at once: the engine, the HTTP server over it, and the page."""
