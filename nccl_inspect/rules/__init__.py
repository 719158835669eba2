"""One module and one page for each rule; a new rule is two new files and no edit elsewhere.

A module states ``RULE`` (:class:`~nccl_inspect.judging.engine.Rule`) and ``judge(facts)``, which gives findings and
what could not be judged. The page beside it, ``NAME.md``, is what ``nccl-inspect explain`` prints, and its examples are
the rule's test.
"""
