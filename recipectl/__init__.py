"""recipectl: pin, build, serve and measure speculative-decoding recipes."""

__version__ = "0.1.0"
