"""The rules, as pure functions over a snapshot: which listener, which broker, what becomes of redirects and answers."""
