"""Clients over the official SDKs, with one stream of events for all. Start reading in `events`."""
