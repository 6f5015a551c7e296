"""What people are asked and what they answer: comparisons and labels, their store, and the choice of pairs."""
