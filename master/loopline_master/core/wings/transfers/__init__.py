"""Planning of transfers (Takahashi et al.), pure: source, line of hosts and rate for each receiver of a file."""
