"""Global computing: clients, networks and servers as queues, after Takefusa et al. (Ninf), section 3.

A scheduler names a server for each request; its data goes out through a finite queue full of other people's packets,
is computed on in the server's queue, and its answer comes back. Everything is a part that a scenario file exchanges:

``part``, ``laws``, ``traffic``, ``programs``, ``disciplines``, ``schedulers``  what a scenario is made of
``scenario``  the TOML file, checked                 ``network``, ``servers``  the queues, in virtual time
``world``     one run                                ``published``             what the paper measured
"""
