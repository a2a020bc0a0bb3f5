"""Deep models, their layers and the engine that trains them."""
