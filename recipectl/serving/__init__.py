"""Serving: plan (pure), runtimes, boot watch, gates (pure core), probes over HTTP, deployments on disk."""
