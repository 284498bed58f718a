"""A study as people read it: sections, and the forms that they are shown in.

A section is made by a function ``Study -> Section | None`` (``section`` has the types, and the parts that a section is
made of); None leaves it out. Its ``brief`` parts and its ``line`` are what a terminal shows unless more is asked for.
It is added by one line in ``sections.SECTIONS``, which is their order, and is then in the terminal, in Markdown and in
JSON (``sections.study_facts``: the section's ``data`` under its ``key``).

``views`` has the forms: for a terminal, Markdown, and the files that ``touchstone study -o DIR`` writes.
"""
