"""Trust: decides which results are believed, which workers get new tasks, and which tasks may no longer be tried."""
