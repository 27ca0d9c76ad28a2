"""The host: its processors, memory, load, battery and benchmark."""
