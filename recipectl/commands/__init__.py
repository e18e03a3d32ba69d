"""One module a verb. Each takes typed values, calls pure modules and ports, and returns an exit code."""
