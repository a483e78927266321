"""From YAML text to frozen, validated objects that remember where each value was written."""
