"""The study: Loopline's policies compared with the field's, on random and recorded work, as one page.

``sections.py`` lists the comparisons, ``section.py`` runs one, ``bounds.py`` has lower bounds for every schedule, and
``page.py`` writes the page. ``loopline simulate report`` runs it.
"""
