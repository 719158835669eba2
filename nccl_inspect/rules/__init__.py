"""One page for each rule, and a module where it compares facts; a new rule needs no edit elsewhere.

The page, ``NAME.md``, says what the rule finds (:mod:`nccl_inspect.judging.pages`), is what ``nccl-inspect explain``
prints, and its examples are the rule's test. The module beside it has ``find(facts)``, which yields values and no
sentence.
"""
