"""The release run as software-defined assets: one module a stage of the walk, bodies of a few lines.

An asset reads its upstream tables, calls one engine function and says what it did. No business logic lives here.
"""
