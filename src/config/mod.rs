//! Configuration: as written in fragments, as validated into settings.
