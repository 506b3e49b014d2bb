//! The bus face of the guard: admission, the D-Bus object, readiness.
