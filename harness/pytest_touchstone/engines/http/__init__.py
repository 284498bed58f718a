"""The engine of served models: whatever answers by an API like OpenAI's.

``server`` reads what people write for a server, and ``probe`` finds out what it can do (``capabilities``). ``scoring``
and ``generating`` turn requests into calls and replies (``replies``) into answers, ``tokens`` with a tokenizer.
``planning`` shares calls among requests, and ``engine`` puts these together. ``managed_servers`` starts servers for a
run, each with a ``parent_watch`` that ends it.

``calls`` is what they and ``transport`` agree on, and which failure is tried again and when. ``transport`` brings every
call to its end: it says how many are under way, and when the server is gone; ``http_client`` sends each once.
"""
