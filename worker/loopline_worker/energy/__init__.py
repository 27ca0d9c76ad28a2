"""Energy of attempts above the power of the idle computer, measured or declared (docs/energy.md)."""
