"""Results of all kinds -> contenders: what one checkpoint has reached on each benchmark, in one form.

    run_folder     a run of this harness: summary and journal
    kept           what is saved of runs, and what was imported
    korean         result files and tables of Korean masked-LM studies
    task_files     {"model", "results": {task: {metric: value, metric_stderr: value}}}
    lm_eval        results of lm-evaluation-harness, with the samples beside them
    find           which of these a person means

Reading only; what is compared with what is ``harness.compare``'s.
"""
