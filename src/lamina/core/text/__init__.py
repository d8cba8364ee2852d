"""Pure functions over text: outlines, tags, estimates, what a call is about. Nothing here knows a segment."""
