"""Many checkpoints at once: the series of a training study, their curves, and what can be said of them.

``points`` has the types and is what everything else imports; ``reading`` makes a ``Study`` of what a user names;
``differences`` compares two points, or one with the best of many.
"""
