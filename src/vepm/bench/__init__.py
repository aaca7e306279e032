"""Speed and memory of the model, side by side with its peers in one run."""
