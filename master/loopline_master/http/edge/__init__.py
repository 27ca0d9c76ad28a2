"""The edge: connections and requests before they are on anybody's account."""
