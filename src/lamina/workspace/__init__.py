"""The door to the machine: files below one folder, web pages, documents. Start reading in `workspace`."""
