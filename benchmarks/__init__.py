"""Speed and memory, as ratios measured in one run with pinned threads."""
