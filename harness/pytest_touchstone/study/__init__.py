"""A study of many checkpoints: its series, the statistics of a training, and the sections that show them.

``points`` has the types and is what everything else imports; ``reading`` makes a ``Study`` of what a user names;
``pool`` has scores of items, differences of points, and means with their noise.

A section is made by a function ``Study -> Section | None`` (``document`` has the types, and the parts that a section is
made of); None leaves it out. Its ``brief`` parts and its ``line`` are what a terminal shows unless more is asked for.
It is added by one line in ``sections``, which has their order, and is then in the terminal, in Markdown, on the page
and in JSON (``sections.study_facts``: the section's ``data`` under its ``key``).
"""
