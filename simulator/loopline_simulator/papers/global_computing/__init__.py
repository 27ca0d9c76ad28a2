"""Global computing: clients, networks and servers as queues, after Takefusa et al. (Ninf), section 3.

A scheduler chooses a server for each request. Its data goes through a finite queue full of foreign packets and is
computed in the server's queue; then the answer comes back. A scenario file can exchange every part:

``part``, ``laws``, ``traffic``, ``programs``, ``schedulers``  parts of a scenario
``scenario``  the TOML file, checked                 ``network``, ``servers``  the queues, in virtual time
``queueing_world``  one run                          ``published``             the paper's measurements
"""
