"""The template, deployed and driven as the world would drive it. `scripts/deployment test` runs it."""
