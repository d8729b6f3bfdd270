"""From max, min and opt to the shapes of optimization profiles."""
