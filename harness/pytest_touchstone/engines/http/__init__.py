"""The engine of served models: whatever answers by an API like OpenAI's.

``address`` reads what people write for a server, and ``probe`` finds out what it can do (``abilities``). ``scoring``
and ``generating`` turn requests into calls and replies (``replies``) into answers, ``tokens`` with a tokenizer.
``planning`` shares calls among requests, ``costs`` counts what they cost, ``canary`` asks known questions, and
``engine`` puts these together for ``factory``.
``children`` starts servers for a run, each a ``child`` with a ``guard`` that ends it.
``calls`` is what they and ``transport`` agree on. ``transport`` brings every call to its end: ``limiter`` says how many
may be under way, ``retry`` which failure is tried again and when, ``circuit`` when the server is gone, and ``keys``
keeps the key out of all that is said.
"""
