"""One page for each rule, and a function where it compares facts; a new rule needs no edit elsewhere.

The page, ``NAME.md``, says what the rule finds (:mod:`nccl_inspect.judging.pages`), is what ``nccl-inspect explain``
prints, and its examples are the rule's test. The function ``NAME(facts)`` is in any module here, together with
others of its subject, or is ``find(facts)`` of a module ``NAME.py``; it yields values and no sentence.
"""
