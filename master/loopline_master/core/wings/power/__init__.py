"""The wing *power*: workers whose computers sleep."""
