"""Long-lived responses: event streams, results, task output as it is written, and the links of clients."""
