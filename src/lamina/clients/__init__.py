"""Beside the official SDKs: what a provider's server can do for a request, and what it says that it did."""
