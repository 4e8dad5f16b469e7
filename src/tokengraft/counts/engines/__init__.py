"""Engines that count on several machines: the work in units (`units`), and what runs them (`ray`)."""
