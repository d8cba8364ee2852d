"""The tests of official SDKs and of frameworks, bare and with lamina. `__main__` says how to run them."""
