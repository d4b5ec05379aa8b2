"""A background-task execution engine: jobs that outlive the call, the client and the engine."""
