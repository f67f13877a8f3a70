"""Evaluates the alarms of `infra/`: each fires on its bad day and on no good one. No server is needed."""
