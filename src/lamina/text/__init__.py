"""Pure functions over text: outlines, tags, estimates, what a call was about. Nothing here knows a segment."""
