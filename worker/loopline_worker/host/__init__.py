"""This computer: its processors, memory, load, battery and benchmark."""
