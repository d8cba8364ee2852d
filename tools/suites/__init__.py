"""The tests of the official SDKs, bare and with every client wrapped. `__main__` says how to run them."""
