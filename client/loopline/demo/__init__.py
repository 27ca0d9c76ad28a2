"""``loopline demo``: a whole grid at work on this computer, with real processes."""
