"""The on-disk contract between the compiler and the runtime: plan and manifest. Standard types and msgspec only."""
