"""The web page: its built assets, and its timeline in forms that are quick to draw.

The source is in web/; ``make web`` builds it into assets/.
"""
