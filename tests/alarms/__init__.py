"""The alarms and the dashboard of `infra/`. No server is needed."""
