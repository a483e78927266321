"""CUDA sources: one emitter a launch kind says which stages it has, one template prints them."""
