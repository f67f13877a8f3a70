"""The alarms of `infra/`, evaluated: each fires on its bad day and on no good one. No server is needed."""
