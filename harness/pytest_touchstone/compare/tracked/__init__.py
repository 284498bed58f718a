"""Results in trackers of experiments: their names there, MLflow's client, and reading an experiment back."""
