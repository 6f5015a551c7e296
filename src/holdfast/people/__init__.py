"""Who answers comparisons: people with accounts and a queue, how far they can be relied on, or a judge."""
