"""Old history: sums that replace its rows."""
