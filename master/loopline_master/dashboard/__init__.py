"""The web page: served from built assets on our own disk, and what it draws in forms that are quick to draw.

Its source is in web/; ``make web`` builds it into assets/.
"""
