"""The paper's experiments: specs, the runner that carries them out, and their tables."""
