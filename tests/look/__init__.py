"""The verbs that look: graph, plan --html, explain, inspect, diff, show, schema."""
