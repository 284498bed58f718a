"""Trackers of experiments: what is sent of a finished run, and to whom.

``payload`` says what there is to send, in the same way for every tracker, and what a tracker is; ``sending`` has the
files, and keeps keys out of both; ``mlflow`` and ``wandb`` send. All of it reads the run's folder, as
``touchstone export RUN`` does; the hook that starts this command at the end of a run is in ``plugin.reporters``.
"""
