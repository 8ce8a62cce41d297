"""A durable live state: events come in, are never lost, and questions are answered meanwhile."""
