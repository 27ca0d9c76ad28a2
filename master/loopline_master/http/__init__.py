"""The REST API: handlers parse a request, ask the part that does the work, and write the reply, deciding nothing."""
