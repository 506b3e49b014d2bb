//! Offline tools: the same signals over many tasks.
