"""The `holdfast` command: one file for each verb, which parses and prints."""
