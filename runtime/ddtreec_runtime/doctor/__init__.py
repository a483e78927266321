"""What this machine is, and whether a bundle can run on it. Needs neither torch nor a GPU, and reads no weight."""
