"""The wing *energy*: notes the energy of attempts whose workers measure or declare it."""
