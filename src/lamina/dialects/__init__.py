"""Providers' wire formats: a request becomes a log, an envelope becomes a request, a request is checked."""
