"""The edge: connections and requests before their sender is known."""
