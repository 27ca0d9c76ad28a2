"""The REST API: parse a request, make an event or a query of it, write the reply. Nothing is decided here."""
