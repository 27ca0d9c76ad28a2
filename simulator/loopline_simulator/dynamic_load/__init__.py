"""Dynamic load sharing after Shirotani et al. (docs/design/dynamic-load.md).

Machines differ in speed, users' programs have unknown sizes, and load is known only from reports that carry results.
"""
