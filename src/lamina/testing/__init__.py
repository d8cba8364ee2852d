"""What tests of lamina, and of what is built on it, are made with."""
