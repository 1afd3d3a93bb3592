//! Values and keys of maps.

/// A value or key of a map. The implementations of `aya::Pod` are beside the maps that use them.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Plain<T>(pub(super) T);
