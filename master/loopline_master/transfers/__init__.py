"""Planning transfers beside the loop: the solver that the pure planner (``core/wings/transfers``) is given."""
