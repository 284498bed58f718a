"""Tasks of an installed lm-evaluation-harness: ``--eval-tasks lm_eval:NAME``.

NAME is a task, a group or a tag of lm-evaluation-harness, or of the folder ``--eval-lm-eval-path``. Without such a name
the file has no benchmark.
"""
