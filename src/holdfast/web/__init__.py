"""The labelling page and the live dashboard: one local web server over a run directory and its database."""
