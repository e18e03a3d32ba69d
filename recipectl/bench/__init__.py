"""Measuring a running server: one client, protocols as data, numbers that carry their own evidence."""
