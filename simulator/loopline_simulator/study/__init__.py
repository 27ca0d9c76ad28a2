"""The study: Loopline's policies held against the field's, on drawn and recorded work, as one page.

``sections.py`` says what is compared, ``section.py`` what a comparison is, ``bounds.py`` what no schedule can beat,
``page.py`` writes the page. ``loopline simulate report`` runs it.
"""
